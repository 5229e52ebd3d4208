"""`semspec plan`: what speculation can gain at most on this machine, said before a probe is trained.

Times the models on every engine that is installed, writes tables and a picture, and ends with a verdict. Knows files
and words; the arithmetic is gain.py's.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from semspec import engine, files
from semspec.bench.rows import Counted, check
from semspec.planning import pictures
from semspec.planning.cost import QUESTIONS
from semspec.planning.gain import LENGTHS
from semspec.planning.placements import Placement, Timed, candidates, placements, time_all
from semspec.provenance import collect
from semspec.report import figures
from semspec.report.tables import DASH, Table
from semspec.schema import Settings

OUT = Path("results/plan")
BENCHES = ("bench", "run")  # of the pipeline, of `semspec bench`
STEP = 24.0  # tokens of a step where no bench has counted any
WORTH = 1.1  # a gain below this with every step kept is no reason to train a probe


def plan(settings: Settings, root: Path, drafts: Sequence[str], kept: float | None, as_json: bool) -> int:
    """Measure, compare every placement, print and write the plan."""
    drafts = list(dict.fromkeys(drafts or [settings.models.draft]))
    bench, its_draft = last_bench(root, drafts, settings.models.target)
    seen = Seen.of(_counted(bench / "results.jsonl")) if bench else Seen()
    given, length, kept = kept is not None, seen.step, seen.kept if kept is None else kept
    with Bar(len(candidates(settings, drafts))) as bar:
        timed = time_all(settings, drafts, bar.tick)
    placed = sorted(placements(timed), key=lambda p: -p.pair().bound(length))
    own = [p for p in placed if p.draft.model == its_draft]  # of the pair that was counted
    known = placed if given else own
    exact = seen.exact if known == own else None
    tables = [costs(timed), bounds(placed, length), *([choices(known, kept, exact)] if kept is not None else [])]
    said = verdict(timed, placed, length, kept, known, exact)
    for table in tables:
        table.save(root / OUT)
    figures.save(pictures.plan(timed, placed, length, kept if known == placed else None), root / OUT, "plan")
    found = {
        "verdict": said,
        "step_tokens": length,
        "acceptance": kept,
        "bench": bench and str(bench.relative_to(root)),
        "models": [
            {
                "role": t.role,
                "model": t.model,
                "engine": t.engine,
                "seconds": t.prices.to_json(),
            }
            for t in timed
        ],
        "placements": [_figures(p, length, kept if p in known else None) for p in placed],
        "provenance": collect(settings),
    }
    files.write_json(root / OUT / "plan.json", found)
    if as_json:
        print(json.dumps(found, sort_keys=True))
    else:
        show(tables)
        if bench and seen.kept is not None:
            counted = f"steps of {length:.0f} tokens, {seen.kept:.0%} of them kept"
            print(f"counted in {bench.relative_to(root)}, of {its_draft}: {counted}")
        print(f"{said}\ntables, picture and figures: {OUT}")
        if engine.faster():
            print(engine.faster())
    return 0


def last_bench(root: Path, drafts: Sequence[str], target: str) -> tuple[Path | None, str]:
    """Folder and draft of the newest finished bench in `root` of this target and one of these drafts, if any."""
    found = [root / f"results/{name}/summary.json" for name in BENCHES]
    for path in sorted((p for p in found if p.exists()), key=lambda p: p.stat().st_mtime, reverse=True):
        made = files.read_json(path).get("provenance")
        if isinstance(made, dict) and made.get("draft") in drafts and made.get("target") == target:
            return path.parent, made["draft"]
    return None, ""


def _counted(path: Path) -> list[dict[str, Any]]:
    rows = files.read_jsonl(path)
    check(rows, Counted, path)
    return rows


class Bar:
    """A progress bar over `models` models."""

    def __init__(self, models: int) -> None:
        from tqdm import tqdm

        self.bar = tqdm(total=models * (QUESTIONS + 1), desc="plan", unit="prompt", file=sys.stderr)

    def __enter__(self) -> Bar:
        return self

    def __exit__(self, *_: object) -> None:
        self.bar.close()

    def tick(self, what: str) -> None:
        self.bar.set_postfix_str(what)
        self.bar.update()


@dataclass(frozen=True)
class Seen:
    """What the project's own bench has counted. step: tokens of a drafted step, or of a kept one where several were
    drafted at once: what was discarded then lay behind rejected steps too. kept: share of the drafted steps that
    `semantic` kept; exact: share of the drafted tokens that `speculative_sampling` kept; None where it did not run."""

    step: float = STEP
    kept: float | None = None
    exact: float | None = None

    @classmethod
    def of(cls, rows: Sequence[Mapping[str, Any]]) -> Seen:
        def total(method: str, *names: str) -> float:
            return float(sum(r[n] for r in rows if r["method"] == method for n in names))

        steps, tokens = total("semantic", "offered"), total("speculative_sampling", "exact_offered")
        one_by_one = total("semantic", "verifications") == steps
        counted = steps if one_by_one else total("semantic", "accepted")
        drafted = total("semantic", "accepted_tokens", *(["discarded_tokens"] if one_by_one else []))
        return cls(
            drafted / counted if counted else STEP,
            total("semantic", "accepted") / steps if steps else None,
            total("speculative_sampling", "exact_accepted") / tokens if tokens else None,
        )


def show(tables: Iterable[Table]) -> None:
    for table in tables:
        print(table.markdown())


def costs(timed: Sequence[Timed]) -> Table:
    """Milliseconds a token, written and read, of each model on each engine."""
    rows = []
    for t in timed:
        read = [1e3 * t.prices.judged.at(n) / n for n in (8, 32, 128)]
        ms = [1e3 * t.alone, 1e3 * t.prices.judged.write, *read]
        rows.append([t.role, t.model, t.engine, *(f"{x:.1f}" for x in ms)])
    columns = ["Role", "Model", "Engine", "Write alone", "Write", "Read 8", "Read 32", "Read 128"]
    notes = [
        (
            "Write, Read n",
            "Milliseconds a token, states pooled for probes: written one by one, or read n in one pass. Medians of "
            "this run.",
        ),
        ("Write alone", "No states pooled, as the target by itself writes."),
    ]
    return Table("costs", "What a token costs on this machine", columns, rows, notes)


def bounds(placed: Sequence[Placement], length: float) -> Table:
    """How much each placement can gain, and what it needs not to lose."""
    rows = []
    for p in placed:
        needed = p.pair().break_even(length)
        rows.append([
            p.draft.label, p.target.engine, f"{p.pair().bound(length):.2f}x",
            DASH if needed is None else f"{100 * needed:.0f}%",
        ])  # fmt: skip
    columns = ["Draft", "Target on", "Bound", "Break-even"]
    notes = [
        (
            "Bound",
            f"Speed-up over the target alone on its fastest engine when every step of {length:.0f} tokens is kept.",
        ),
        ("Break-even", "Share of drafted steps that has to be kept for a speed-up of 1 (one step per verification)."),
    ]
    return Table("bounds", "What drafting can gain", columns, rows, notes)


def choices(placed: Sequence[Placement], kept: float, exact: float | None) -> Table:
    """The best number of steps, and of tokens of a step, for each placement at this acceptance."""
    rows = []
    for p in placed:
        gamma, length, gain = _best(p, kept)
        guessed = p.pair("verified").best_guesses(exact) if exact is not None and p.shares_vocabulary else None
        rows.append([
            p.draft.label, p.target.engine, str(gamma), str(length), f"{gain:.2f}x",
            f"{guessed[1]:.2f}x ({_tokens(guessed[0])})" if guessed else DASH,
        ])  # fmt: skip
    columns = ["Draft", "Target on", "gamma", "Step (tokens)", "Speed-up", "Exact speculation"]
    notes = [
        ("Speed-up", f"Expected where {100 * kept:.0f}% of the steps are kept, whatever their length."),
        ("Exact speculation", "Expected of speculative sampling at the token acceptance that the bench counted."),
    ]
    return Table("choices", f"What suits an acceptance of {100 * kept:.0f}%", columns, rows, notes)


def _exactly(placed: Sequence[Placement], exact: float | None) -> tuple[int, float]:
    """(tokens a proposal, speed-up) of exact speculation where that is best; (0, 0) where it can't be."""
    found = [p.pair("verified").best_guesses(exact) for p in placed if p.shares_vocabulary] if exact is not None else []
    return max(found, key=lambda f: f[1], default=(0, 0.0))


def _tokens(n: int) -> str:
    return f"{n} token{'s' * (n != 1)}"


def _best(p: Placement, kept: float) -> tuple[int, int, float]:
    """(gamma, tokens of a step, speed-up)."""
    found = [(*p.pair().best_gamma(kept, length), length) for length in LENGTHS]
    gamma, gain, length = max(found, key=lambda f: f[1])
    return gamma, length, gain


def _figures(p: Placement, length: float, kept: float | None) -> dict[str, Any]:
    found: dict[str, Any] = {
        "draft": p.draft.model, "draft_engine": p.draft.engine, "target_engine": p.target.engine,
        "bound": p.pair().bound(length), "break_even": p.pair().break_even(length),
    }  # fmt: skip
    if kept is not None:
        found["gamma"], found["length"], found["speedup"] = _best(p, kept)
    return found


def verdict(
    timed: Sequence[Timed],
    placed: Sequence[Placement],
    length: float,
    kept: float | None,
    known: Sequence[Placement],
    exact: float | None = None,
) -> str:
    """One plain sentence or two. known: the placements that have this acceptance, and of a token `exact`."""
    alone = min((t for t in timed if t.role == "target"), key=lambda t: t.alone)
    best = max(placed, key=lambda p: _best(p, 1.0)[2])
    gamma, tokens, most = _best(best, 1.0)
    where = f"{best.draft.label}, the target on {best.target.engine}, gamma {gamma}, steps of about {tokens} tokens"
    guesses, exactly = _exactly(known, exact)
    instead = f" Exact speculation gives {exactly:.2f}x with {_tokens(guesses)} a proposal." if exactly > 1.0 else ""
    if most < WORTH:
        said = f"No drafting{' by meaning' if instead else ''} can win here: it gains {most:.2f}x at most ({where})."
        return f"{said}{instead or f' Use {alone.label} alone.'}"
    needed = best.pair().break_even(length)
    said = f"Drafting gains at most {most:.2f}x over {alone.label} alone, every step kept: {where}."
    said += f" It pays from an acceptance of {100 * needed:.0f}% on." if needed is not None else ""
    if kept is None:
        return f"{said}{instead}"
    best = max(known, key=lambda p: _best(p, kept)[2])
    gamma, tokens, gain = _best(best, kept)
    how = f"{best.draft.label}, the target on {best.target.engine}, gamma {gamma}, steps of about {tokens} tokens"
    if gain < 1.0:
        if instead:
            return f"{said} At {100 * kept:.0f}% nothing by meaning wins ({gain:.2f}x at best).{instead}"
        return f"{said} At {100 * kept:.0f}% nothing wins ({gain:.2f}x at best): use {alone.label} alone."
    return f"{said} At {100 * kept:.0f}% expect {gain:.2f}x: {how}.{instead if exactly > gain else ''}"

"""The steps of `semspec tune`, each a function from a search's folder to its folder, to be run one after the other.

    prepare -> search (any number of processes) -> live -> conclude

Each may be killed and run again. flows/tune.py runs them as processes (`python -m semspec.tuning STEP NAME`), so that
cancelling a flow leaves nothing behind. Knows files and progress; knows nothing of Prefect.
"""

from __future__ import annotations

import difflib
import json
import shutil
import sys
import tempfile
import uuid
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from semspec import config, files, pipeline, preflight
from semspec.errors import UserError
from semspec.planning.cost import Cost, Curve, Prices
from semspec.schema import Settings
from semspec.tuning import pictures, search, trees
from semspec.tuning.search import Found, Searcher

NEEDED = ("data/labels.parquet", "data/samples/samples.parquet", "data/models/draft.json", "data/models/target.json")
PRESENT = "params.yaml"  # the present settings, as a name beside trials


def _load(root: Path, name: str) -> tuple[Path, Settings]:
    out = search.folder(root, name)
    return out, config.validate(files.read_json(out / "settings.json"), str(out))


def _searcher(root: Path, out: Path, settings: Settings) -> Searcher:
    return Searcher(root, settings, Cost.read(out / "cost.json"))


def prepare(root: Path, name: str) -> None:
    """Record the tree, measure what tokens cost, and judge what is there already: target, draft, params.yaml."""
    from tqdm import tqdm

    out, settings = _load(root, name)
    for path in NEEDED:
        files.present(root / path)
    problems, pair = trees.questions(settings), trees.loader(settings)
    if not (out / "id.json").exists():
        files.write_json(out / "id.json", {"id": uuid.uuid4().hex})
    probes = Searcher(root, settings, _FREE, problems, pair).probes(settings)
    tree = trees.Tree.of(settings, root, problems, pair)
    if settings.tune.extend:
        each = (4 + len(trees.THRESHOLDS)) * len(problems)
        with tqdm(total=each, desc="record", unit="answer", file=sys.stderr) as bar:

            def tick(what: str) -> None:
                bar.set_postfix_str(what, refresh=False)
                bar.update()

            trees.record(tree, settings, probes, tick)
    if not (out / "cost.json").exists():
        files.write_json(out / "cost.json", trees.price(tree, settings, root, probes).to_json())
    searcher = _searcher(root, out, settings)
    searcher.trees[settings.text.split] = tree
    known: dict[str, Any] = {PRESENT: searcher.run({})}
    for plain in ("target", "draft"):
        known[plain] = asdict(trees.outcome(tree, tree.method(plain, settings), searcher.cost))
    base = known["target"]["latency_s"]
    for values in known.values():
        values["ratio"] = values["latency_s"] / max(base, 1e-12)
        values["combined"] = search.combined(values["pass_at_1"], values["ratio"], settings.tune.price)
    files.write_json(out / "known.json", known)
    _log(root, name, [])


_NOTHING = Prices(*[Curve((1,), (0.0,))] * 3)
_FREE = Cost(_NOTHING, _NOTHING)


def worker(root: Path, name: str, number: int = 0) -> None:
    """Run trials until there are enough."""
    from tqdm import tqdm

    out, settings = _load(root, name)
    searcher = _searcher(root, out, settings)
    study = search.open_study(out, settings, seed=1000 * number)
    with tqdm(desc=f"worker {number}", unit="trial", file=sys.stderr) as bar:

        def done(trial: Any) -> None:
            _log(root, name, [_record(trial)], new=True)
            a = trial.user_attrs
            bar.set_postfix_str(f"#{trial.number} {100 * a['pass_at_1']:.0f}% {a['latency_s']:.2f} s", refresh=False)
            bar.update()

        search.work(study, out, searcher, done)


def _record(trial: Any) -> dict[str, Any]:
    """An Optuna trial as plain data, for MLflow."""
    names = ("pass_at_1", "latency_s", "ratio", "combined", "missing", "target_ratio", "acceptance_rate")
    return {
        "number": trial.number,
        "state": trial.state.name,
        "params": trial.params | {f"set.{k}": v for k, v in trial.user_attrs.get("overrides", {}).items()},
        "metrics": {n: trial.user_attrs[n] for n in names if n in trial.user_attrs},
    }


def _log(root: Path, name: str, trials: list[dict[str, Any]], **more: Any) -> None:
    from semspec.tracking.trials import log_trials

    out, settings = _load(root, name)
    log_trials(root, settings, files.read_json(out / "id.json")["id"], name, trials, **more)


def live(root: Path, name: str) -> None:
    """Run the best for real."""
    from tqdm import tqdm

    from semspec.tuning.live import agreement, measure

    out, settings = _load(root, name)
    found = search.results(search.open_study(out, settings))
    chosen = search.shortlist(found, settings, settings.tune.live)
    if not chosen:
        raise UserError("no trial keeps within the limits; raise tune.latency_limit, or search on with more --trials")
    total = settings.tune.live_seeds * len(trees.questions(settings)) * (len(chosen) + 1)
    with tqdm(total=total, desc="live", unit="answer", file=sys.stderr) as bar:
        measured = measure(_searcher(root, out, settings), chosen, out / "live", lambda *row: bar.update())
    result = {"configurations": [asdict(v) for v in measured], "spearman": agreement(chosen, measured)}
    files.write_json(out / "live.json", result | {"numbers": [t.number for t in chosen]})


def conclude(root: Path, name: str) -> None:
    """Choose the winner; write table.md, results.json, the pictures, and what MLflow still lacks."""
    import optuna

    from semspec.report import figures
    from semspec.tuning.live import Live
    from semspec.tuning.live import order as best_first

    out, settings = _load(root, name)
    study = search.open_study(out, settings)
    search.requeue(study)
    found, known = search.results(study), files.read_json(out / "known.json")
    feasible = [t.feasible(settings) for t in found]
    front = search.front([t for t, ok in zip(found, feasible, strict=True) if ok])
    winner = search.best(found, settings)
    measured: list[Live] = []
    if settings.tune.live and (out / "live.json").exists():
        lived = files.read_json(out / "live.json")
        measured = [Live(**v) for v in lived["configurations"]]
        by_number = {t.number: t for t in found}
        winner = next((by_number[v.number] for v in best_first(measured, settings.tune.latency_limit)), None)
        chosen = [by_number[v.number] for v in measured]
        figures.save(pictures.agreement(chosen, measured, lived["spearman"]), out, "agreement")
    if winner is not None and not better(winner, known[PRESENT], settings):
        winner = None
    number = None if winner is None else winner.number
    figures.save(pictures.pareto(found, feasible, front, known, number), out, "pareto")
    shares = importances(study)
    if shares:
        figures.save(pictures.importances(shares), out, "importances")
    states = [t for t in study.get_trials(deepcopy=False) if t.state.is_finished()]
    files.write_json(
        out / "results.json",
        {
            "winner": None if winner is None else asdict(winner),
            "front": [asdict(t) for t in front],
            "known": known,
            "importances": shares,
            "trials": {s.name: sum(t.state is s for t in states) for s in optuna.trial.TrialState},
            "live": files.read_json(out / "live.json") if measured else None,
        },
    )
    with files.atomic(out / "table.md") as t:
        t.write_text(table(front, known, winner, measured), encoding="utf-8")
    kept = [p for p in (out / n for n in ("table.md", "results.json", "pareto.png", "importances.png")) if p.exists()]
    _log(root, name, [_record(t) for t in states], finished=kept)


def better(winner: Found, present: Mapping[str, float], settings: Settings) -> bool:
    """Whether it is worth changing params.yaml for: by `combined`, or because params.yaml is beyond the limit."""
    limit = settings.tune.latency_limit
    beyond = limit is not None and present["ratio"] > limit
    return beyond or winner.combined > present["combined"]


def importances(study: Any) -> dict[str, dict[str, float]]:
    """Share of each parameter in what separates the good trials: for Pass@1 and for latency; {} with too few."""
    import warnings

    from optuna.importance import PedAnovaImportanceEvaluator, get_param_importances

    # the evaluator looks for low values
    targets = {
        "importance for Pass@1": lambda t: -t.user_attrs["pass_at_1"],
        "importance for latency": lambda t: t.user_attrs["latency_s"],
    }
    out: dict[str, dict[str, float]] = {}
    for title, target in targets.items():
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # it is marked experimental
                evaluator = PedAnovaImportanceEvaluator()
                out[title] = get_param_importances(study, evaluator=evaluator, target=target)
        except (ValueError, RuntimeError):  # too few trials, or all alike
            continue
    return out


def table(front: list[Found], known: Mapping[str, Any], winner: Found | None, measured: list[Any]) -> str:
    """The front, what is known, and live figures where there are some, as a Markdown table."""
    real = {v.number: v for v in measured}
    lines = [
        "| configuration | Pass@1 | latency s | of the target's | combined | live: Pass@1, latency s |",
        "|---|---|---|---|---|---|",
    ]
    rows: list[tuple[str, Mapping[str, Any], int | None]] = [(n, v, None) for n, v in known.items()]
    shown = {t.number: t for t in [*front, *([winner] if winner else [])]}
    rows += [(f"trial {n}" + (" (winner)" if winner and n == winner.number else ""), asdict(t), n)
             for n, t in shown.items()]  # fmt: skip
    for label, v, number in rows:
        lived = real.get(-1 if number is None else number)
        last = f"{100 * lived.pass_at_1:.1f}%, {lived.latency_s:.3f}" if lived else ""
        cells = f"{100 * v['pass_at_1']:.1f}% | {v['latency_s']:.3f} | {v['ratio']:.2f} | {v['combined']:.3f}"
        lines.append(f"| {label} | {cells} | {last} |")
    return "\n".join(lines) + "\n"


def apply(root: Path, overrides: Mapping[str, Any], write: bool) -> str:
    """The difference that `overrides` make to params.yaml, as a unified diff; made only if `write`."""
    changes = [f"{name}={json.dumps(value)}" for name, value in overrides.items()]
    with tempfile.TemporaryDirectory() as copy:
        shutil.copy(root / config.PARAMS, copy)
        config.apply(copy, None, changes, preflight.check)
        before = (root / config.PARAMS).read_text(encoding="utf-8").splitlines(keepends=True)
        after = (Path(copy) / config.PARAMS).read_text(encoding="utf-8").splitlines(keepends=True)
    if write:
        with pipeline.alone(root):
            config.apply(root, None, changes, preflight.check)
    return "".join(difflib.unified_diff(before, after, config.PARAMS, f"{config.PARAMS} (the winner)"))


STEPS = {"prepare": prepare, "search": worker, "live": live, "conclude": conclude}

"""`semspec plan --check`: a finished bench's latencies as its counted passes predict them, and how far off that is.

Times the models of the bench again and writes a table beside its answers. Knows rows and curves; what passes cost is
cost.py's affair, and what a pair could gain at most gain.py's.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from semspec import config, engine, files
from semspec.bench.metrics import BASE
from semspec.bench.rows import Priced
from semspec.bench.rows import check as check_rows
from semspec.bench.runner import PLACE
from semspec.decoding import wanted
from semspec.engine.base import Wanted
from semspec.errors import UserError
from semspec.planning.command import Bar, Seen, costs, show
from semspec.planning.cost import ROLES, Cost
from semspec.planning.placements import Timed, placements, sample_text, time_one
from semspec.provenance import place
from semspec.report.tables import DASH, Table
from semspec.schema import Settings

SPEED = ("output_tokens", "latency_s")  # of a row


def check(settings: Settings, root: Path, results: Path, as_json: bool) -> int:
    """Predict the latencies of a finished bench from its passes, and say how far off that is."""
    rows = files.read_jsonl(files.present(results / "results.jsonl"))
    if not rows:
        raise UserError(f"{results / 'results.jsonl'} holds no answer; run the bench again")
    if not all(r.get("passes") for r in rows):
        raise UserError(f"{results} was made before passes were counted; run the bench again")
    check_rows(rows, Priced, results / "results.jsonl")
    settings = config.load(results) if (results / config.PARAMS).exists() else settings
    made = files.read_json(results / "summary.json").get("provenance") or {}
    if not isinstance(made, dict) or not isinstance(made.get(PLACE) or {}, dict):
        raise UserError(f"{results / 'summary.json'} does not say how the bench was made; run the bench again")
    roles = [role for role in ROLES if any(role in r["passes"] for r in rows)]
    _same(made, settings, roles, results)
    problems = sample_text(settings)
    with Bar(len(roles)) as bar:
        timed = [
            time_one(settings, r, getattr(settings.models, r), settings.engine.of(r), problems, bar.tick) for r in roles
        ]
    here, *there = (p.partition(", commit")[0] for p in (place(), *(made.get(PLACE) or {})))
    if elsewhere := sorted(set(there) - {here}):
        print(
            f"note: {results} was made on another machine ({'; '.join(elsewhere)}) than this ({here})", file=sys.stderr
        )
    found = predicted(rows, _cost(timed))
    bound = achieved(rows, timed, found)
    table = checked(found, timed, bound)
    table.save(results)
    curves = [{"role": t.role, "seconds": t.prices.to_json()} for t in timed]
    answers = files.sha256(results / "results.jsonl")
    files.write_json(
        results / "prediction.json", {"answers": answers, "methods": found, "bound": bound, "models": curves}
    )
    if as_json:
        print(json.dumps(found, sort_keys=True))
    else:
        show([costs(timed), table])
    return 0


def _same(made: Mapping[str, Any], settings: Settings, roles: Iterable[str], folder: Path) -> None:
    """`UserError` unless these settings run the models of a bench as it ran them."""
    for role in roles:
        now = {role: getattr(settings.models, role), f"{role}_weights": engine.number_format(settings.engine.of(role))}
        for name, value in now.items():
            if made.get(name, value) != value:
                raise UserError(
                    f"{folder} was made with {made[name]} as its {name}, which would be {value} here; "
                    f"correct models.{role} or engine.{role}, or check it where it was made"
                )


def _cost(timed: Sequence[Timed]) -> Cost:
    """Of the models of a bench; where its methods asked one alone, no pass of the other is counted."""
    prices = dict.fromkeys(ROLES, timed[0].prices) | {t.role: t.prices for t in timed}
    return Cost(prices["draft"], prices["target"])


def _wanted(row: str) -> Wanted:
    return wanted(row.partition("@")[0])


def predicted(rows: Iterable[Mapping[str, Any]], cost: Cost) -> dict[str, dict[str, float]]:
    """{method: seconds of an answer as predicted from its passes, as measured, and the ratio of the two}."""
    by_method: dict[str, list[tuple[float, float]]] = {}
    for row in rows:
        passes = {r: Counter({int(w): n for w, n in made.items()}) for r, made in row["passes"].items()}
        scoring = row["phases"].get("score", 0.0) if row["method"].startswith("semantic") else 0.0  # no model's pass
        modelled = cost.seconds(passes, _wanted(row["method"])) + scoring
        by_method.setdefault(row["method"], []).append((modelled, row["latency_s"]))
    out = {}
    for name, seconds in by_method.items():
        predicted_s, measured_s = (float(np.mean(part)) for part in zip(*seconds, strict=True))
        out[name] = {"predicted_s": predicted_s, "measured_s": measured_s, "ratio": predicted_s / measured_s}
    return out


def achieved(
    rows: Sequence[Mapping[str, Any]], timed: Sequence[Timed], found: dict[str, dict[str, float]]
) -> float | None:
    """The bound of this placement, every drafted step kept and probes looking on; None without both models or the
    target's own answers.

    Adds to `found`, for each method, its tokens a second over the target's as they were measured, and for the methods
    whose drafts the target has to read what share of the bound that is.
    """
    models = {t.role: t for t in timed}
    tokens, seconds = ({n: sum(r[k] for r in rows if r["method"] == n) for n in found} for k in SPEED)
    if set(models) != set(ROLES) or BASE not in found:
        return None
    (placed,) = placements(timed)
    step = Seen.of(rows).step
    for name, own in found.items():
        own["gain"] = tokens[name] / seconds[name] / (tokens[BASE] / seconds[BASE])
        own_rows = [r for r in rows if r["method"] == name]
        asked = {role for r in own_rows for role in r["passes"]}
        if asked == set(ROLES) and any(r["offered"] or r["exact_offered"] for r in own_rows):
            own["of_bound"] = own["gain"] / placed.pair(_wanted(name)).bound(step)
    return placed.pair().bound(step)


def checked(found: Mapping[str, Mapping[str, float]], timed: Sequence[Timed], bound: float | None) -> Table:
    """The prediction beside what was measured, a row for each method."""
    rows = [
        [
            name,
            f"{f['predicted_s']:.2f}",
            f"{f['measured_s']:.2f}",
            f"{100 * (f['ratio'] - 1):+.0f}%",
            f"{f['gain']:.2f}x" if "gain" in f else DASH,
            f"{f['of_bound']:.0%}" if "of_bound" in f else DASH,
        ]
        for name, f in found.items()
    ]
    where = "; ".join(t.label for t in timed)
    notes = [
        (
            "Predicted",
            f"Passes that the method made, counted by width, times what such passes cost when timed alone ({where}).",
        ),
        ("Error", "Predicted over measured, less one. What a method computes beside passes is not in the prediction."),
        ("Tokens/s", "Over the target's in this bench; answers may differ in length."),
    ]
    if bound:
        notes.append(
            (
                "Of the bound",
                f"{bound:.2f}x where probes look on, else more: every drafted step kept, written by the draft, read by "
                "the target.",
            )
        )
    return Table(
        "prediction",
        "The cost model against a bench",
        ["Method", "Predicted (s)", "Measured (s)", "Error", "Tokens/s", "Of the bound"],
        rows,
        notes,
    )

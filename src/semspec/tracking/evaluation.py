"""What was measured of a bundle: one method's answers problem by problem, and the conditions of the measurement.

Two bundles can be compared only where these conditions are equal, so both travel in the bundle (evaluation.json). Reads
the files of stage `bench`; knows nothing of MLflow, nor of when a difference is good enough (promotion.py).
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from semspec import files

if TYPE_CHECKING:
    from semspec.schema import Settings

METHOD = "semantic"  # what a bundle is for; the other methods' results stand beside it in bundle.json
FILE = "evaluation.json"
# {condition: how its value is told to people}; the number of problems and the set's name only explain the hash.
CONDITIONS = {
    "problems_sha256": "problems",
    "repeats": "answers to each problem",
    "max_tokens": "tokens of an answer",
    "sampling": "sampling",
    "grader": "grader",
}

Evaluation = dict[str, Any]


def measure(root: Path, settings: Settings) -> Evaluation | None:
    """The evaluation in results/bench; None where there is none of `METHOD`.

    `{"method", "conditions": {...}, "correct": {problem id: share of answers that are right}, "latency_s": {id: s}}`
    """
    from semspec.bench.metrics import per_problem

    bench = root / "results/bench"
    if not (bench / "results.jsonl").exists():
        return None
    rows = [row for row in files.read_jsonl(bench / "results.jsonl") if row["method"] == METHOD]
    if not rows:
        return None
    made, chosen = files.read_json(bench / "summary.json")["provenance"], settings.bench
    correct = per_problem(rows, "correct")
    conditions = {
        "dataset": Path(made["dataset"]).name,
        "n": len(correct),
        "problems_sha256": made["dataset_sha256"],
        "repeats": chosen.repeats,
        "max_tokens": chosen.max_tokens,
        "sampling": f"temperature {chosen.temperature:g}, top_p {chosen.top_p:g}" if chosen.temperature else "greedy",
        "grader": ", ".join(f"{name} {made['packages'].get(name)}" for name in ("math-verify", "semspec")),
    }
    return {
        "method": METHOD,
        "conditions": conditions,
        "correct": correct,
        "latency_s": per_problem(rows, "latency_s"),
    }


def _told(conditions: dict[str, Any], name: str) -> str:
    if name == "problems_sha256":
        return f"{conditions['n']} of {conditions['dataset']} ({conditions[name][:8]})"
    return str(conditions[name])


def differences(new: Evaluation, old: Evaluation) -> list[str]:
    """What forbids to compare two evaluations, for people: ["problems: 40 of gsm8k (0123abcd), not 6 of ..."]."""
    a, b = new["conditions"], old["conditions"]
    return [f"{title}: {_told(a, c)}, not {_told(b, c)}" for c, title in CONDITIONS.items() if a[c] != b[c]]

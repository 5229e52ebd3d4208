"""The metrics of a comparison, each defined once: rows of results.jsonl in, one summary per method out.

`METRICS` holds the name, the wording and the printed form of every metric; reports and the terminal print these and
define nothing themselves. Knows the fields of a row, not how a method produced them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, get_args

import numpy as np

from semspec.bench.statistics import interval, ratio_interval
from semspec.decoding.base import PHASES
from semspec.schema import Method

BASE = "target"  # speed-up and quality difference are measured against this method
Row = Mapping[str, Any]


@dataclass(frozen=True)
class Metric:
    """A metric's key in summary.json, its column title, its definition, and how one value is printed."""

    key: str
    title: str
    definition: str
    show: Callable[[float], str]

    @property
    def ci(self) -> str:
        """Key of its 95% interval (not every metric has one)."""
        return f"{self.key}_ci"

    def text(self, summary: Mapping[str, Any]) -> str:
        """The value with its interval, or a dash where it is not defined."""
        value = summary.get(self.key)
        if value is None:
            return "–"
        low, high = (self.show(v).rstrip("x%") for v in summary.get(self.ci) or (0.0, 0.0))
        return self.show(value) + (f" [{low}, {high}]" if summary.get(self.ci) else "")


def _points(x: float) -> str:
    text = f"{100 * x:+.0f}"
    return "0" if text in ("+0", "-0") else text


def _percent(x: float) -> str:
    return f"{100 * x:.0f}%"


METRICS: tuple[Metric, ...] = (
    Metric(
        "pass_at_1",
        "Pass@1",
        "Share of problems whose final answer is graded right (mean over repeats); 95% interval by bootstrap "
        "over problems.",
        _percent,
    ),
    Metric(
        "pass_at_1_diff",
        "Pass@1 vs target (points)",
        "Pass@1 minus the target's on the same problems, in percentage points; paired bootstrap.",
        _points,
    ),
    Metric(
        "latency_s",
        "Latency (s)",
        "Mean wall seconds per problem: drafting, verifying and scoring; loading and warm-up left out.",
        lambda x: f"{x:.2f}",
    ),
    Metric(
        "tps",
        "Tokens/s",
        "Output tokens of all problems, counted with the target's tokenizer, over their wall seconds.",
        lambda x: f"{x:.1f}",
    ),
    Metric(
        "speedup",
        "Speed-up",
        "Mean over problems of latency(target) / latency(method), paired on the problem, same token budget; "
        "paired bootstrap over problems.",
        lambda x: f"{x:.2f}x",
    ),
    Metric(
        "speedup_total",
        "Speed-up (total)",
        "The target's summed latency over the method's, same problems; no single short answer can make most of it. "
        "Paired bootstrap over problems.",
        lambda x: f"{x:.2f}x",
    ),
    Metric("target_ratio", "Target ratio", "Share of output tokens that the target wrote.", _percent),
    Metric(
        "acceptance_rate",
        "Acceptance rate (steps)",
        "Accepted draft steps over offered draft steps.",
        _percent,
    ),
    Metric(
        "acceptance_length",
        "Acceptance length (tokens)",
        "Mean accepted draft tokens per verification; the target's own tokens are not added.",
        lambda x: f"{x:.1f}",
    ),
    Metric(
        "discarded_tokens",
        "Discarded tokens",
        "Mean draft tokens thrown away per problem.",
        lambda x: f"{x:.1f}",
    ),
    Metric(
        "verifier_tokens",
        "Verifier tokens",
        "Mean tokens per problem that the target read to verify or score.",
        lambda x: f"{x:.1f}",
    ),
    Metric(
        "exact_acceptance_rate",
        "Exact acceptance (tokens)",
        "Proposed tokens that exact verification kept, over those proposed.",
        _percent,
    ),
    Metric(
        "exact_acceptance_length",
        "Exact acceptance length (tokens)",
        "Mean proposed tokens that exact verification kept in a pass in which the target wrote, or had read a rejected "
        "draft that it then salvaged; the token that the pass itself gives is not added.",
        lambda x: f"{x:.1f}",
    ),
    Metric(
        "target_passes",
        "Target's passes",
        "Mean passes per problem in which the target wrote; without proposals one for each token that it wrote.",
        lambda x: f"{x:.1f}",
    ),
    Metric(
        "score_share",
        "Scoring",
        "Share of the latency that judging took beside the models' passes: summing up the hidden states, probes and "
        "rule. A prompted mark is a model's pass and counts as verifying.",
        lambda x: f"{100 * x:.1f}%",
    ),
    Metric("truncated", "Cut off", "Share of answers that ended at the token budget.", _percent),
    Metric("n", "Problems", "Number of problems.", lambda x: f"{x:.0f}"),
)
BY_KEY = {m.key: m for m in METRICS}


def per_problem(rows: Sequence[Row], field: str) -> dict[str, float]:
    """{problem id: mean of `field` over the problem's repeats}, in the order of the rows."""
    values: dict[str, list[float]] = {}
    for row in rows:
        values.setdefault(str(row["id"]), []).append(float(row[field]))
    return {k: float(np.mean(v)) for k, v in values.items()}


def _share(part: float, whole: float) -> float | None:
    return part / whole if whole else None


def _total(rows: Sequence[Row], field: str) -> float:
    return float(sum(row.get(field) or 0 for row in rows))


def _alone(rows: Sequence[Row], resamples: int, seed: int) -> dict[str, Any]:
    """Metrics of one method that need no other method."""
    correct = list(per_problem(rows, "correct").values())
    latency = list(per_problem(rows, "latency_s").values())
    output, offered, proposed = (_total(rows, f) for f in ("output_tokens", "offered", "exact_offered"))
    kept = _total(rows, "exact_accepted")
    # a rejected draft is verified by the pass that has read it, in which the target wrote nothing else
    steps = (s for row in rows for s in row.get("trace", ()))
    salvaged = sum(s.get("rejected_text") is not None and s.get("exact_offered", 0) > 0 for s in steps)
    return {
        "pass_at_1": float(np.mean(correct)),
        "pass_at_1_ci": list(interval(correct, resamples, seed)),
        "latency_s": float(np.mean(latency)),
        "latency_s_ci": list(interval(latency, resamples, seed)),
        "tps": _share(output, _total(rows, "latency_s")),
        "target_ratio": _share(_total(rows, "target_tokens"), output),
        "acceptance_rate": _share(_total(rows, "accepted"), offered),
        "acceptance_length": _share(_total(rows, "accepted_tokens"), _total(rows, "verifications") if offered else 0),
        "discarded_tokens": _total(rows, "discarded_tokens") / len(rows),
        "verifier_tokens": _total(rows, "verifier_tokens") / len(rows),
        "exact_acceptance_rate": _share(kept, proposed),
        "exact_acceptance_length": _share(kept, _total(rows, "target_passes") + salvaged if proposed else 0),
        "target_passes": _total(rows, "target_passes") / len(rows),
        "score_share": _share(
            sum(row["phases"].get(p, 0.0) for row in rows for p in ("pool", "score")), _total(rows, "latency_s")
        ),
        "phases": {p: sum(row["phases"].get(p, 0.0) for row in rows) / len(rows) for p in PHASES},
        "truncated": sum(row["finish_reason"] == "length" for row in rows) / len(rows),
        "n": len(correct),
    }


def _against(rows: Sequence[Row], base: Sequence[Row], resamples: int, seed: int) -> dict[str, Any]:
    """Speed-up and difference in Pass@1 against `base`, over the problems that both have; else null."""
    keys = ("speedup", "speedup_total", "pass_at_1_diff")
    out: dict[str, Any] = dict.fromkeys([*keys, *(f"{k}_ci" for k in keys)])
    mine, theirs = per_problem(rows, "latency_s"), per_problem(base, "latency_s")
    shared = [k for k in mine if k in theirs]
    if not shared:
        return out
    right, base_right = per_problem(rows, "correct"), per_problem(base, "correct")
    above, below = [theirs[k] for k in shared], [max(mine[k], 1e-9) for k in shared]
    ratio = [a / b for a, b in zip(above, below, strict=True)]
    diff = [right[k] - base_right[k] for k in shared]
    return {
        "speedup": float(np.mean(ratio)),
        "speedup_ci": list(interval(ratio, resamples, seed)),
        "speedup_total": sum(above) / sum(below),
        "speedup_total_ci": list(ratio_interval(above, below, resamples, seed)),
        "pass_at_1_diff": float(np.mean(diff)),
        "pass_at_1_diff_ci": list(interval(diff, resamples, seed)),
    }


def order(names: Sequence[str]) -> list[str]:
    """Methods as they are printed: in the order of `schema.Method`, each followed by its variants as given."""
    known = get_args(Method)

    def place(name: str) -> tuple[int, bool]:
        method, variant, _ = name.partition("@")
        return known.index(method) if method in known else len(known), bool(variant)

    return sorted(names, key=place)


def summarize(rows: Sequence[Row], resamples: int = 2000, seed: int = 0) -> dict[str, dict[str, Any]]:
    """{method: its metrics} from rows of results.jsonl, methods in the order in which the rows name them.

    Values that are not defined (an acceptance rate where nothing was offered, a speed-up without the target)
    are null.
    """
    by_method: dict[str, list[Row]] = {}
    for row in rows:
        by_method.setdefault(row["method"], []).append(row)
    base = by_method.get(BASE, [])
    return {
        name: _alone(own, resamples, seed) | _against(own, base, resamples, seed) for name, own in by_method.items()
    }


def pareto(methods: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """The methods on the front of speed and quality, fastest first.

    Off it is a method that another one equals or beats in both Pass@1 and latency, and beats in one of them.
    """

    def beaten(m: Mapping[str, Any], by: Mapping[str, Any]) -> bool:
        at_least = by["pass_at_1"] >= m["pass_at_1"] and by["latency_s"] <= m["latency_s"]
        return at_least and (by["pass_at_1"] > m["pass_at_1"] or by["latency_s"] < m["latency_s"])

    front = [n for n, m in methods.items() if not any(beaten(m, other) for other in methods.values())]
    return sorted(front, key=lambda n: methods[n]["latency_s"])

"""When a challenger may become champion: not worse than the champion, on the same problems, by more than the margin.

Pure: two evaluations and the section `registry` of params.yaml in, a verdict with its reason out. Knows nothing of
MLflow.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from semspec.tracking.evaluation import METHOD, Evaluation, differences

if TYPE_CHECKING:
    from semspec.schema import Registry


@dataclass(frozen=True)
class Verdict:
    """Whether a version may be champion, why in words, and the numbers that were compared (empty where none were)."""

    passed: bool
    reason: str
    numbers: dict[str, Any] = field(default_factory=dict)


def judge(new: Evaluation | None, champion: Evaluation | None, rules: Registry, first: bool = False) -> Verdict:
    """The gate. `first`: there is no champion; else `champion` is its evaluation, or None where it was not measured.

    The difference in Pass@1 is paired on the problem. Its bootstrap interval (95%) is told, and does not decide: with
    few problems it is so wide that an equally good version would hardly ever pass.
    """
    from semspec.bench.statistics import interval

    if first:
        return Verdict(True, "there was no champion")
    if new is None:
        return Verdict(False, f"it has no results of {METHOD}: put {METHOD} into bench.methods and run again")
    if champion is None:
        return Verdict(True, "the champion was never measured")
    unlike = differences(new, champion)
    if unlike:
        return Verdict(False, f"it was not measured as the champion was ({'; '.join(unlike)})")
    ids = list(new["correct"])
    points = [100 * (new["correct"][i] - champion["correct"][i]) for i in ids]
    difference, (low, high) = float(np.mean(points)), interval(points)
    slowdown = sum(new["latency_s"].values()) / sum(champion["latency_s"].values())
    numbers = {"points": difference, "points_ci": [low, high], "n": len(ids), "slowdown": slowdown}
    told = f"Pass@1 {difference:+.1f} points [{low:+.1f}, {high:+.1f}] on the champion's {len(ids)} problems"
    told += f", {slowdown:.2f} times its latency"
    if round(difference, 6) < -rules.margin:
        return Verdict(False, f"{told}; registry.margin allows -{rules.margin:g}", numbers)
    if rules.slowdown is not None and slowdown > rules.slowdown:
        return Verdict(False, f"{told}; registry.slowdown allows {rules.slowdown:g}", numbers)
    return Verdict(True, told, numbers)

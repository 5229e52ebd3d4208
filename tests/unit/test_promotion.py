"""The gate between challenger and champion, on evaluations written by hand."""

import pytest

from semspec.schema import Registry
from semspec.tracking.promotion import judge


def evaluation(right: str, seconds: float = 1.0, **conditions) -> dict:
    """An evaluation of as many problems as `right` has letters: "yn" is one right and one wrong."""
    base = {
        "dataset": "gsm8k",
        "n": len(right),
        "problems_sha256": "0123456789",
        "repeats": 1,
        "max_tokens": 256,
        "sampling": "greedy",
        "grader": "math-verify 0.9.0, semspec 0.1.0",
    }
    correct = {str(i): float(r == "y") for i, r in enumerate(right)}
    return {"conditions": base | conditions, "correct": correct, "latency_s": dict.fromkeys(correct, seconds)}


RULES = Registry(margin=10.0)


def test_the_first_version_passes_and_one_without_results_never_replaces_a_champion():
    """Nothing to compare with is no reason to wait; nothing to compare is."""
    assert judge(None, None, RULES, first=True).passed
    refused = judge(None, evaluation("yy"), RULES)
    assert not refused.passed and "bench.methods" in refused.reason
    assert judge(evaluation("nn"), None, RULES).passed, "the champion was never measured"


@pytest.mark.parametrize(
    ("new", "passed"),
    [("yyyyyyyyyy", True), ("yyyyyyyyyn", True), ("nyyyyyyyyy", True), ("yyyyyyyynn", False), ("nnnnnnnnnn", False)],
)
def test_worse_by_more_than_the_margin_is_refused(new, passed):
    """Ten points of margin on ten problems: one fewer passes, two fewer do not."""
    verdict = judge(evaluation(new), evaluation("yyyyyyyyyy"), RULES)
    assert verdict.passed is passed
    assert verdict.numbers["points"] == pytest.approx(10 * (new.count("y") - 10)) and verdict.numbers["n"] == 10
    assert passed or "registry.margin allows -10" in verdict.reason


def test_the_difference_is_paired_on_the_problem():
    """Equal scores from other problems differ from equal answers: only the interval can tell."""
    same = judge(evaluation("yyyyynnnnn"), evaluation("yyyyynnnnn"), RULES)
    other = judge(evaluation("nnnnnyyyyy"), evaluation("yyyyynnnnn"), RULES)
    assert same.numbers["points"] == other.numbers["points"] == 0
    assert same.numbers["points_ci"] == [0, 0] and other.numbers["points_ci"][0] < -20


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"problems_sha256": "fedcba98xx"}, "problems: 2 of gsm8k (fedcba98), not 2 of gsm8k (01234567)"),
        ({"max_tokens": 512}, "tokens of an answer: 512, not 256"),
        ({"repeats": 3}, "answers to each problem: 3, not 1"),
        ({"sampling": "temperature 0.6, top_p 0.95"}, "sampling: temperature 0.6, top_p 0.95, not greedy"),
        ({"grader": "math-verify 1.0, semspec 0.1.0"}, "grader: math-verify 1.0"),
    ],
)
def test_what_was_measured_otherwise_is_not_compared(change, said):
    """A better score on other problems, or under another budget or grader, is refused, and the difference is named."""
    verdict = judge(evaluation("yy", **change), evaluation("nn"), RULES)
    assert not verdict.passed and said in verdict.reason and not verdict.numbers


def test_latency_is_told_and_decides_only_where_it_is_asked_to():
    """Three times as slow passes by default; `registry.slowdown` refuses it."""
    new, old = evaluation("yy", seconds=3.0), evaluation("yy", seconds=1.0)
    free = judge(new, old, RULES)
    assert free.passed and free.numbers["slowdown"] == pytest.approx(3) and "3.00 times its latency" in free.reason
    bound = judge(new, old, Registry(slowdown=2.0))
    assert not bound.passed and "registry.slowdown allows 2" in bound.reason

"""Calibration and evaluation of probes on numbers small enough to check by hand."""

from __future__ import annotations

import numpy as np
import pytest

from semspec.probe import calibration, evaluation
from semspec.probe.calibration import Calibration
from semspec.probe.crossvalidation import choose
from semspec.rules import ratio


def scores(n: int = 400, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    raw = rng.normal(size=n)
    return raw, np.clip(np.round(10 / (1 + np.exp(-2 * raw)) + rng.normal(size=n)), 0, 10) / 10


@pytest.mark.parametrize("kind", ["none", "isotonic", "sigmoid"])
@pytest.mark.parametrize("n", [3, 30, 400])
def test_calibration_is_monotone_and_bounded(kind: calibration.Kind, n: int) -> None:
    """A larger raw prediction never gets a smaller probability, and all lie in [floor, 1]."""
    fitted = calibration.fit(kind, *scores(n), floor=0.02)
    out = fitted(np.linspace(-9, 9, 500))
    assert (np.diff(out) >= 0).all() and out.min() >= 0.02 and out.max() <= 1
    again = Calibration.from_json(fitted.to_json())
    assert np.array_equal(again(np.linspace(-9, 9, 500)), out)


@pytest.mark.parametrize("kind", ["isotonic", "sigmoid"])
def test_calibration_mends_the_scale(kind: calibration.Kind) -> None:
    """Predictions on a wrong scale come out near the labels' means, also on rows that were not fitted."""
    fitted = calibration.fit(kind, *scores(), floor=0.02)
    raw, label = scores(seed=1)
    assert evaluation.ece(fitted(raw), label) < 0.05
    assert evaluation.ece(np.clip(raw, 0, 1), label) > 0.1


def test_isotonic_has_few_ties_and_no_lone_zero() -> None:
    """Inside the curve neighbours differ, and two low rows with label 0 do not make the low end 0."""
    raw, label = scores()
    label = np.where(label < 0.1, 0.1, label)
    label[np.argsort(raw)[:2]] = 0
    fitted = calibration.fit("isotonic", raw, label, floor=0.001)
    inner = np.linspace(fitted.x[0], fitted.x[-1], 200)
    assert (np.diff(fitted(inner)) > 0).all()
    assert fitted(np.array([-99.0]))[0] > 0.05


@pytest.mark.parametrize("kind", ["isotonic", "sigmoid"])
def test_useless_scores_become_the_mean(kind: calibration.Kind) -> None:
    """A score that falls while the label rises, or never changes, is calibrated to about the mean label."""
    raw, label = scores()
    for useless in (-raw, np.zeros(len(raw))):
        out = calibration.fit(kind, useless, label, floor=0.02)(useless)
        np.testing.assert_allclose(out, label.mean(), atol=1e-6)


def test_floor() -> None:
    """The floor is a quarter of a sample, and at least a thousandth."""
    assert calibration.floor_of(10) == 0.025
    assert calibration.floor_of(10_000) == 0.001


def test_spearman_of_a_constant_is_zero() -> None:
    """No ranking, no correlation."""
    assert evaluation.spearman(np.ones(5), np.arange(5.0)) == 0
    assert evaluation.spearman(np.arange(5.0), np.arange(5.0) ** 3) == pytest.approx(1)


def test_interval_resamples_questions_not_rows() -> None:
    """Copying every row of a question many times does not narrow the interval."""
    rng = np.random.default_rng(0)
    a = rng.normal(size=20)
    b = a + rng.normal(size=20)
    g = np.arange(20)
    low, high = evaluation.spearman_ci(a, b, g, 0)
    low50, high50 = evaluation.spearman_ci(np.repeat(a, 50), np.repeat(b, 50), np.repeat(g, 50), 0)
    assert low < evaluation.spearman(a, b) < high
    assert high50 - low50 == pytest.approx(high - low, rel=0.15)


def test_counted_ranks_equal_ranks_of_copies() -> None:
    """Ranking by counts gives the rank correlation of the rows really copied, ties included."""
    rng = np.random.default_rng(0)
    a, b = rng.integers(0, 6, 30).astype(float), rng.normal(size=30)
    times = rng.integers(0, 4, size=(1, 30)).astype(float)
    x, y = evaluation._weighted_ranks(a, times)[0], evaluation._weighted_ranks(b, times)[0]
    w = times[0]
    counted = (w * x * y).sum() / np.sqrt((w * x * x).sum() * (w * y * y).sum())
    rows = np.repeat(np.arange(30), w.astype(int))
    assert counted == pytest.approx(evaluation.spearman(a[rows], b[rows]))


def test_ece_by_hand() -> None:
    """Always saying 0.5 is calibrated where labels are half 0, half 1, and off by half where all are 1."""
    pred = np.full(100, 0.5)
    assert evaluation.ece(pred, np.tile([0.0, 1.0], 50)) == pytest.approx(0)
    assert evaluation.ece(pred, np.ones(100)) == pytest.approx(0.5)


def test_decision_by_hand() -> None:
    """Perfect probabilities agree with the rule from labels and accept nothing the target never says."""
    p, q = np.array([0.0, 0.5, 0.2, 0.9]), np.array([0.5, 0.5, 0.4, 0.1])
    sure = np.ones(4)
    rules = {"ratio": ratio(np.maximum(p, 1e-9), q), "joint": sure}
    drifting = np.array([0.5, 0.5, 0.6, 0.6])
    out = evaluation.decision(rules, {"mean": sure, "logprob": sure, "constant": drifting}, p, q, np.arange(4), 0)
    assert out["baselines"]["constant"]["spearman"] == 0
    assert out["mean_true"] == pytest.approx((0 + 1 + 0.5 + 1) / 4)
    mine = out["rules"]["ratio"]
    assert mine["agreement"] == pytest.approx(1) and mine["spearman"] == pytest.approx(1)
    assert mine["unsaid_share"] == pytest.approx(0, abs=1e-6)
    mean = out["baselines"]["mean"]
    assert mean["mean_predicted"] == 1 and mean["unsaid_share"] == 0.25 == out["unsaid_share_of_all"]
    assert mean["agreement"] == pytest.approx(2.5 / 4)
    assert out["rules"]["joint"]["beats_baselines"] is False


def test_tradeoff_by_hand() -> None:
    """The best-scored steps come first; ties are shared out; keeping all gives the share of all."""
    label = np.array([0.5, 0.0, 0.5, 0.0])
    share, unsaid = evaluation.tradeoff(np.array([4.0, 1.0, 3.0, 2.0]), label, points=4)
    assert share == pytest.approx([0.25, 0.5, 0.75, 1]) and unsaid == pytest.approx([0, 0, 1 / 3, 0.5])
    assert evaluation.tradeoff(np.ones(4), label, points=4)[1] == pytest.approx([0.5] * 4)


def test_choice_by_rank_then_error() -> None:
    """The better rank correlation wins; a near tie goes to the smaller absolute error."""

    def views(rank: float, mae: float) -> dict[str, dict[str, float]]:
        return {"draft": {"spearman": rank, "mae": mae}, "all": {"spearman": 0.0, "mae": 0.0}}

    assert choose({"linear": views(0.3, 0.2), "mlp": views(0.4, 0.3)})[0] == "mlp"
    assert choose({"linear": views(0.400, 0.2), "mlp": views(0.405, 0.3)})[0] == "linear"
    assert "tie" in choose({"linear": views(0.400, 0.3), "mlp": views(0.400, 0.2)})[1]
    assert choose({"mlp": views(0.1, 0.2)})[0] == "mlp"

"""How good a probe is, and how good the decision is that two probes make together.

Works on predictions for rows that a probe was not trained on; knows nothing of how they were made. A
constant has no ranks: its Spearman is reported as 0.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from semspec.rules import ratio

RESAMPLES = 1000
BINS = 10


def spearman(a: np.ndarray, b: np.ndarray) -> float:
    """Rank correlation; 0 when either side is constant or there are fewer than 3 rows."""
    from scipy.stats import rankdata

    if len(a) < 3 or np.ptp(a) == 0 or np.ptp(b) == 0:
        return 0.0
    return float(np.corrcoef(rankdata(a), rankdata(b))[0, 1])


def _weighted_ranks(v: np.ndarray, times: np.ndarray) -> np.ndarray:
    """Midranks `[resamples, n]` of `v` when row i is present `times[:, i]` times, centred on their mean."""
    order = np.argsort(v, kind="stable")
    _, inverse = np.unique(v, return_inverse=True)
    _, start = np.unique(v[order], return_index=True)
    tied = np.add.reduceat(times[:, order], start, axis=1)
    rank = (np.cumsum(tied, axis=1) - tied / 2)[:, inverse]
    return rank - (times * rank).sum(1, keepdims=True) / times.sum(1, keepdims=True)


def spearman_ci(a: np.ndarray, b: np.ndarray, groups: np.ndarray, seed: int) -> list[float]:
    """95% percentile interval of `spearman`, whole questions (`groups`) resampled.

    A resample is a count per row, so that all of them are ranked at once and none is ever sorted.
    """
    _, question = np.unique(groups, return_inverse=True)
    k = int(question.max()) + 1
    counts = np.random.default_rng(seed).multinomial(k, np.full(k, 1 / k), size=RESAMPLES)
    values = []
    for part in np.array_split(counts, 10):
        times = part[:, question].astype(float)
        x, y = _weighted_ranks(a, times), _weighted_ranks(b, times)
        spread = np.sqrt((times * x * x).sum(1) * (times * y * y).sum(1))
        values.append((times * x * y).sum(1) / np.where(spread > 1e-9, spread, np.inf))
    return [float(v) for v in np.percentile(np.concatenate(values), [2.5, 97.5])]


def _bins(pred: np.ndarray) -> list[np.ndarray]:
    return [b for b in np.array_split(np.argsort(pred, kind="stable"), BINS) if len(b)]


def ece(pred: np.ndarray, label: np.ndarray) -> float:
    """Expected calibration error over 10 equal-mass bins (labels are fractions, so not scikit-learn's)."""
    return float(sum(len(b) * abs(pred[b].mean() - label[b].mean()) for b in _bins(pred)) / len(pred))


def regression(
    pred: np.ndarray, label: np.ndarray, groups: np.ndarray, seed: int, score: np.ndarray | None = None
) -> dict[str, Any] | None:
    """MAE, Spearman with its interval by question, Brier, ECE, reliability bins; None without rows.

    score: what the rows are ranked by; `pred` when absent. Calibration is monotone, so a calibrated probe ranks as its
    raw score does; but cross-fitted calibration has one curve per fold, whose offsets are no property of the probe.
    """
    if not len(pred):
        return None
    score = pred if score is None else score
    return {
        "n": len(pred),
        "questions": len(np.unique(groups)),
        "mae": float(np.abs(pred - label).mean()),
        "spearman": spearman(score, label),
        "spearman_ci": spearman_ci(score, label, groups, seed) if np.ptp(score) else [0.0, 0.0],
        "brier": float(((pred - label) ** 2).mean()),
        "ece": ece(pred, label),
        "mean_predicted": float(pred.mean()),
        "mean_label": float(label.mean()),
        "reliability": [
            {"predicted": float(pred[b].mean()), "label": float(label[b].mean()), "n": len(b)} for b in _bins(pred)
        ],
    }


def views(
    pred: np.ndarray,
    label: np.ndarray,
    groups: np.ndarray,
    draft: np.ndarray,
    seed: int,
    constant: bool = False,
    score: np.ndarray | None = None,
) -> dict[str, Any]:
    """`regression` over every labelled row ("all") and over the draft's samples alone ("draft").

    constant: the predictor says one number per fold; the drift of that number from fold to fold is no
    ranking.
    """
    out: dict[str, Any] = {}
    for name, mask in (("all", ~np.isnan(label)), ("draft", ~np.isnan(label) & draft)):
        ranked = None if score is None else score[mask]
        found = regression(pred[mask], label[mask], groups[mask], seed, ranked)
        if constant and found:
            found |= {"spearman": 0.0, "spearman_ci": [0.0, 0.0]}
        out[name] = found
    return out


def judged(view: dict[str, Any]) -> dict[str, Any]:
    """The rows that count: the draft's samples, as in verification; all rows if those have no labels."""
    return view["draft"] or view["all"]


def beats(probe: dict[str, Any], baselines: dict[str, dict[str, Any]]) -> bool:
    """Better than every baseline in Brier score and in Spearman, with an interval of Spearman above 0."""
    mine, others = judged(probe), [judged(b) for b in baselines.values()]
    return bool(
        mine["spearman_ci"][0] > 0
        and all(mine["brier"] < o["brier"] and mine["spearman"] > o["spearman"] for o in others)
    )


def _against_truth(
    a: np.ndarray, truth: np.ndarray, unsaid: np.ndarray, groups: np.ndarray, seed: int
) -> dict[str, Any]:
    return {
        "mean_predicted": float(a.mean()),
        "spearman": spearman(a, truth),
        "spearman_ci": spearman_ci(a, truth, groups, seed) if np.ptp(a) else [0.0, 0.0],
        "agreement": float((1 - np.abs(a - truth)).mean()),
        "unsaid_share": float(a[unsaid].sum() / max(a.sum(), 1e-12)),
    }


def decision(
    rules: Mapping[str, np.ndarray],
    baselines: Mapping[str, np.ndarray],
    label_target: np.ndarray,
    label_draft: np.ndarray,
    groups: np.ndarray,
    seed: int,
) -> dict[str, Any]:
    """Predicted acceptance probabilities of draft samples against min(1, p / q) of their labels.

    rules, baselines: name -> acceptance probability `[n]`. `agreement`: the chance that a rule and the true one decide
    alike on the same uniform draw. `unsaid_share`: expected share of accepted steps that the target never said in
    its own samples (label 0). `beats_baselines`: better than every baseline in agreement and Spearman, Spearman's
    interval above 0. Without a true decision (`labels: own`) a rule has its mean alone. The baselines "mean" and
    "constant" say one number per fold, whose drift is no ranking.
    """
    known = ~np.isnan(label_target) & (label_draft > 0)
    p, q, g = label_target[known], label_draft[known], groups[known]
    base: dict[str, Any] = {"n": len(p), "questions": len(np.unique(g))}
    if not len(p):
        empty = {n: {"mean_predicted": float(a.mean()), "beats_baselines": None} for n, a in rules.items() if len(a)}
        return base | {"mean_true": None, "rules": empty, "baselines": {}}
    truth, unsaid = ratio(p, q), p == 0
    scored = {n: _against_truth(a[known], truth, unsaid, g, seed) for n, a in {**rules, **baselines}.items()}
    for name in {"mean", "constant"} & set(scored):
        scored[name] |= {"spearman": 0.0, "spearman_ci": [0.0, 0.0]}
    others = {n: scored.pop(n) for n in baselines}
    for mine in scored.values():
        wins = all(mine[k] > o[k] for o in others.values() for k in ("agreement", "spearman"))
        mine["beats_baselines"] = bool(wins and mine["spearman_ci"][0] > 0)
    return base | {
        "mean_true": float(truth.mean()),
        "unsaid_share_of_all": float(unsaid.mean()),
        "rules": scored,
        "baselines": others,
    }


def tradeoff(score: np.ndarray, label_target: np.ndarray, points: int = 101) -> tuple[np.ndarray, np.ndarray]:
    """What a threshold on `score` gives: share of steps kept `[points]`, and share of those that the target never said.

    The best-scored steps are kept first; ties are kept together on average.
    """
    _, group = np.unique(-score, return_inverse=True)
    unsaid = (label_target == 0).astype(float)
    count = np.bincount(group)
    kept = np.concatenate([[0.0], np.cumsum(count)])
    bad = np.concatenate([[0.0], np.cumsum(np.bincount(group, weights=unsaid))])
    share = np.linspace(1 / len(score), 1, points)
    return share, np.interp(share * len(score), kept, bad) / (share * len(score))

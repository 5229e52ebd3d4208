"""The linear predictor of a label in [0, 1], by one of three losses: squared, binomial, ordinal.

Many labels are 0 (in the published runs a fifth, of the draft's samples two in five) and the rest lies up to 1,
so a straight line fits them badly. `binomial` is logistic regression on the counts behind the label. `ordinal` asks
whether the label lies above each of `LEVELS`, a logistic regression for each, and predicts the mean of their answers.
All are linear in the columns up to a fixed link, so that a trained one folds into a few vectors over the raw reading.
Knows nothing of roles, folds or calibration.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

Loss = Literal["squared", "binomial", "ordinal"]
LEVELS = (0.0, 0.2, 0.5, 0.8)
# A penalty sees the hidden-state block with this total variance, whatever its width (each standardised token statistic
# has 1): one strength then suits 64 components and 40,000 raw inputs alike. With an equal say, hidden states of a few
# hundred rows drowned the statistics (docs/log.md).
BLOCK_VARIANCE = 0.5


def block_weight(n_hidden: int, n_logprob: int) -> np.ndarray:
    """Factors `[n_hidden + n_logprob]` of one reading's columns, as the penalty is to see them."""
    return np.concatenate([np.full(n_hidden, np.sqrt(BLOCK_VARIANCE / max(n_hidden, 1))), np.ones(n_logprob)])


def fit(
    x: np.ndarray,
    y: np.ndarray,
    strength: float,
    weight: np.ndarray,
    loss: Loss,
    importance: np.ndarray | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """Coefficients `[k, d]` and intercepts `[k]` on columns `x` `[n, d]` (k = `len(LEVELS)` if ordinal, else 1).

    strength: of the ridge penalty, in units of the squared loss; weight: see `block_weight`; importance: how much each
    row counts `[n]` (None: all alike, 1).
    """
    z = x * weight
    if loss == "squared":
        from sklearn.linear_model import Ridge

        model = Ridge(alpha=strength).fit(z, y, sample_weight=importance)
        return (model.coef_ * weight)[None], np.array([float(model.intercept_)])
    importance = np.ones(len(y)) if importance is None else importance
    answers = [y] if loss == "binomial" else [(y > level).astype(float) for level in LEVELS]
    found = [_logistic(z, a, strength, importance) for a in answers]
    return np.stack([coef * weight for coef, _ in found]), np.array([intercept for _, intercept in found])


def _logistic(z: np.ndarray, share: np.ndarray, strength: float, importance: np.ndarray) -> tuple[np.ndarray, float]:
    """Logistic regression in which a row counts as `share` of a yes and the rest of a no."""
    from sklearn.linear_model import LogisticRegression

    mean = float(np.average(share, weights=importance))
    if not 0 < mean < 1:
        edge = 1 / (2 * len(share))
        return np.zeros(z.shape[1]), float(np.log(np.clip(mean, edge, 1 - edge) / np.clip(1 - mean, edge, 1 - edge)))
    both = np.concatenate([share, 1 - share]) * np.tile(importance, 2)
    rows = np.flatnonzero(both > 0)
    # the curvature of the logistic loss is a quarter at most
    model: Any = LogisticRegression(C=4 / strength, max_iter=2000)
    model.fit(np.concatenate([z, z])[rows], rows < len(share), sample_weight=both[rows])
    return model.coef_[0], float(model.intercept_[0])


def link(scores: np.ndarray, loss: Loss) -> np.ndarray:
    """Raw prediction `[n]` from the linear scores `[n, k]`."""
    if loss == "squared":
        return scores[:, 0]
    return (1 / (1 + np.exp(-np.clip(scores, -60, 60)))).mean(axis=1)

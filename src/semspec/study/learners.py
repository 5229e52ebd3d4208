"""Ways to learn a number in [0, 1] from columns: the candidates of the study `predictors`.

Each takes columns `[n, d]`, their weights as a ridge is to see them (`linear.block_weight`), labels `[n]` and the
questions of the rows, and returns a function from columns to raw predictions. Knows nothing of where columns come from.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from semspec.probe import linear, network
from semspec.probe.crossvalidation import fit_mlp
from semspec.schema import Train

Predict = Callable[[np.ndarray], np.ndarray]
Learner = Callable[[np.ndarray, np.ndarray, np.ndarray, np.ndarray, Train, int], Predict]


def weighted(loss: linear.Loss, importance: np.ndarray | None = None) -> Learner:
    """A linear learner of rows that count as much as `importance` `[n]` says."""

    def learn(x: np.ndarray, weight: np.ndarray, y: np.ndarray, groups: np.ndarray, train: Train, seed: int) -> Predict:
        coef, intercept = linear.fit(x, y, train.ridge, weight, loss, importance)
        return lambda new: linear.link(new @ coef.T + intercept, loss)

    return learn


def trees(x: np.ndarray, weight: np.ndarray, y: np.ndarray, groups: np.ndarray, train: Train, seed: int) -> Predict:
    """Boosted trees, squared error."""
    from sklearn.ensemble import HistGradientBoostingRegressor

    model = HistGradientBoostingRegressor(
        max_iter=200, learning_rate=0.05, max_leaf_nodes=8, min_samples_leaf=40, l2_regularization=5, random_state=seed
    ).fit(x, y)
    return lambda new: model.predict(new)


def forest(x: np.ndarray, weight: np.ndarray, y: np.ndarray, groups: np.ndarray, train: Train, seed: int) -> Predict:
    """Extremely randomised trees, averaged."""
    from sklearn.ensemble import ExtraTreesRegressor

    model = ExtraTreesRegressor(300, min_samples_leaf=8, max_features=0.33, random_state=seed).fit(x, y)
    return lambda new: model.predict(new)


def both(x: np.ndarray, weight: np.ndarray, y: np.ndarray, groups: np.ndarray, train: Train, seed: int) -> Predict:
    """The mean of the ordinal one and boosted trees."""
    one, two = (f(x, weight, y, groups, train, seed) for f in (weighted("ordinal"), trees))
    return lambda new: (one(new) + two(new)) / 2


def mlp(x: np.ndarray, weight: np.ndarray, y: np.ndarray, groups: np.ndarray, train: Train, seed: int) -> Predict:
    """The paper's three layers, stopped early on a fifth of the questions."""
    fit = fit_mlp(x, y, groups, np.arange(len(x)), train, seed)
    return lambda new: network.forward(fit.weights, new)


LEARNERS: Mapping[str, Learner] = {
    "ridge": weighted("squared"),
    "binomial": weighted("binomial"),
    "ordinal": weighted("ordinal"),
    "trees": trees,
    "forest": forest,
    "ordinal + trees": both,
    "mlp": mlp,
}

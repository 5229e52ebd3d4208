"""How far is a state from the states that a probe was trained on?

A Mahalanobis distance in a few principal components, with a limit that one in a hundred states of questions held out
from the fit exceeds. A state beyond it is one of which the probe knows nothing. Knows arrays only.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from semspec.probe import features
from semspec.probe.features import Features

COMPONENTS = 16
ROWS = 512  # more rows add time and nothing to so few components
SHARE = 0.99  # of held-out states lie within the limit


@dataclass
class Novelty:
    """projection: of `Features`, `[layers, hidden, k]`; spread `[k]`; limit: the distance from which a state is far."""

    features: Features
    spread: np.ndarray
    limit: float

    def distance(self, hidden: np.ndarray) -> np.ndarray:
        """Root mean square of the standardised components `[n]` of `hidden` `[n, layers, hidden]`; about 1 inside."""
        z = self.features.transform(hidden, None) / self.spread
        return np.sqrt((z.astype(np.float64) ** 2).mean(1))

    def far(self, hidden: np.ndarray) -> np.ndarray:
        """`[n]` bool: beyond the limit."""
        return self.distance(hidden) > self.limit

    def arrays(self) -> dict[str, np.ndarray]:
        """What `of` reads again, named for a probe's safetensors file."""
        f = self.features
        assert f.center is not None and f.projection is not None
        return {
            "far_center": f.center,
            "far_projection": f.projection,
            "far_spread": self.spread,
            "far_limit": np.array([self.limit]),
        }

    @classmethod
    def of(cls, arrays: dict[str, np.ndarray], layers: list[int]) -> Novelty | None:
        """From a probe's arrays; None when it has none."""
        if "far_limit" not in arrays:
            return None
        kept = Features(layers, center=arrays["far_center"], projection=arrays["far_projection"])
        return cls(kept, arrays["far_spread"], float(arrays["far_limit"][0]))


def _fit(hidden: np.ndarray, rows: np.ndarray, layers: list[int], seed: int) -> Novelty:
    if len(rows) > ROWS:
        rows = np.sort(np.random.default_rng(seed).choice(rows, ROWS, replace=False))
    fitted = features.fit(hidden, None, rows, layers, COMPONENTS, seed)
    spread = np.maximum(fitted.transform(hidden[rows], None).std(0), 1e-6)
    return Novelty(fitted, spread, np.inf)


def fit_novelty(hidden: np.ndarray, fold: np.ndarray, layers: list[int], seed: int) -> Novelty:
    """Fit on all rows of `hidden` `[n, layers, hidden]`; the limit comes from folds `[n]` that a fit did not see."""
    held_out = np.empty(len(hidden))
    for k in np.unique(fold):
        held_out[fold == k] = _fit(hidden, np.flatnonzero(fold != k), layers, seed).distance(hidden[fold == k])
    made = _fit(hidden, np.arange(len(hidden)), layers, seed)
    made.limit = float(np.quantile(held_out, SHARE))
    return made

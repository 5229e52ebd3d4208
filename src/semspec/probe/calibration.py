"""From a raw prediction to a probability whose scale can be trusted, because p and q are used as a RATIO.

`isotonic`: plain isotonic regression gives long plateaus (ties) and, when the lowest few rows all have label
0, a probability of 0; both are ruinous in p / q. So it is fitted to the means of equal-mass bins of about 20
rows, each plateau is replaced by one knot at its mean score ("centred" isotonic regression, Oron and
Flournoy 2017), and the curve is linear between knots: it stays monotone, ties only beyond the outermost
knots, and no end rests on fewer than a bin of rows. `sigmoid`: Platt's, with the fractional labels as they
are; a falling sigmoid becomes a constant. Whatever the kind, the result is clipped into [floor, 1]. Knows
nothing of who is calibrated.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

Kind = Literal["none", "isotonic", "sigmoid"]
BIN_ROWS = 20
MAX_BINS = 50


def floor_of(n_samples: int) -> float:
    """The smallest probability ever returned: a quarter of one sample in `n_samples`, at least 0.001."""
    return max(1e-3, 1 / (4 * n_samples))


@dataclass
class Calibration:
    """A fitted, monotone map `[n] -> [n]` into [floor, 1]: knots `x`, `y`, or a sigmoid's slope,
    intercept."""

    kind: Kind
    floor: float
    x: np.ndarray
    y: np.ndarray

    def __call__(self, raw: np.ndarray) -> np.ndarray:
        raw = np.asarray(raw, dtype=np.float64)
        if self.kind == "isotonic":
            out = np.interp(raw, self.x, self.y)
        elif self.kind == "sigmoid":
            out = 1 / (1 + np.exp(-np.clip(self.x[0] * raw + self.y[0], -60, 60)))
        else:
            out = raw
        return np.clip(out, self.floor, 1.0)

    def to_json(self) -> dict[str, Any]:
        return {"kind": self.kind, "floor": self.floor, "x": self.x.tolist(), "y": self.y.tolist()}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Calibration:
        return cls(data["kind"], data["floor"], np.array(data["x"], float), np.array(data["y"], float))


def fit(kind: Kind, raw: np.ndarray, label: np.ndarray, floor: float) -> Calibration:
    """Fit on predictions the predictor made for rows it was NOT trained on."""
    raw, label = np.asarray(raw, float), np.asarray(label, float)
    if kind == "isotonic":
        return Calibration(kind, floor, *_centred_isotonic(raw, label))
    if kind == "sigmoid":
        slope, intercept = _sigmoid(raw, label)
        return Calibration(kind, floor, np.array([slope]), np.array([intercept]))
    return Calibration(kind, floor, np.zeros(0), np.zeros(0))


def _centred_isotonic(raw: np.ndarray, label: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    from sklearn.isotonic import IsotonicRegression

    order = np.argsort(raw, kind="stable")
    bins = np.array_split(order, int(np.clip(len(raw) // BIN_ROWS, min(2, len(raw)), MAX_BINS)))
    x = np.array([raw[b].mean() for b in bins])
    x = np.maximum.accumulate(x)  # rounding of the means of equal scores
    y = np.array([label[b].mean() for b in bins])
    rows = np.array([len(b) for b in bins], float)
    # scores tied across bins share one prediction: merge them before fitting
    value, group = np.unique(x, return_inverse=True)
    weight = np.bincount(group, rows)
    y = np.bincount(group, rows * y) / weight
    fitted = IsotonicRegression().fit(value, y, sample_weight=weight).predict(value)
    level, plateau = np.unique(fitted.round(12), return_inverse=True)
    return np.bincount(plateau, weight * value) / np.bincount(plateau, weight), level


def _sigmoid(raw: np.ndarray, label: np.ndarray) -> tuple[float, float]:
    from sklearn.linear_model import LogisticRegression

    mean = float(np.clip(label.mean(), 1e-6, 1 - 1e-6))
    constant = 0.0, float(np.log(mean / (1 - mean)))
    spread = raw.std()
    if spread < 1e-12 or not 0 < label.mean() < 1:
        return constant
    z = (raw - raw.mean()) / spread
    model = LogisticRegression(C=1e6, max_iter=1000).fit(
        np.concatenate([z, z])[:, None],
        np.repeat([1, 0], len(z)),
        sample_weight=np.concatenate([label, 1 - label]),
    )
    slope = float(model.coef_[0, 0]) / spread
    if slope <= 0:
        return constant
    return slope, float(model.intercept_[0]) - slope * float(raw.mean())

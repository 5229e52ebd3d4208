"""From a reading to the numbers a predictor sees: layer choice, standardisation, principal components.

Everything is fitted on the rows it is given, so the caller decides what is training data. Hidden states are
handled one layer at a time in fp32, so memory stays near the fp16 input whatever the number of layers. Knows
nothing of labels.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from semspec.errors import UserError

if TYPE_CHECKING:
    from semspec.schema import Train

DEFAULT_COMPONENTS = 64
PCA_ROWS = 2048  # more rows add time and nothing to the leading components
# fp16 keeps 11 bits: spread below this share of a dimension's mean is rounding, and must not be blown up to 1
ROUNDING = 1e-3


def choose_layers(layers: Literal["all", "last"] | list[int], n_layers: int) -> list[int]:
    """Layer numbers, ascending and unique; negative ones count from the last layer."""
    if layers == "all":
        return list(range(n_layers))
    if layers == "last":
        return [n_layers - 1]
    wrong = [i for i in layers if not -n_layers <= i < n_layers]
    if wrong or not layers:
        what = f"names layer {wrong[0]}" if wrong else "is empty"
        raise UserError(f"train.layers {what}; the model has layers 0 to {n_layers - 1}")
    return sorted({i % n_layers for i in layers})


def probed_layers(train: Train, role: str, n_layers: int) -> list[int]:
    """The layers that a role's probe looks at; none where it sees log-probabilities alone."""
    return choose_layers(train.layers_of(role), n_layers) if train.features != "logprob" else []


def n_components(setting: Literal["auto"] | int, rows: int, inputs: int) -> int:
    """Principal components to keep; 0 = none. `auto`: when rows are fewer than a quarter of inputs."""
    wanted = (DEFAULT_COMPONENTS if rows < inputs / 4 else 0) if setting == "auto" else setting
    return max(0, min(wanted, min(rows, PCA_ROWS) - 1, inputs))


def _spread(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and a safe standard deviation of each column, fp32."""
    mean = x.mean(0, dtype=np.float64).astype(np.float32)
    centred = x - mean
    std = np.sqrt(np.einsum("ij,ij->j", centred, centred) / len(x))
    std = np.maximum(std, ROUNDING * np.abs(mean))
    std[std < 1e-6] = 1.0
    return mean, std


@dataclass
class Features:
    """A fitted map from readings to `[n, n_hidden + n_logprob]`; either block's columns have mean variance 1.

    layers: the layers it reads (empty: hidden states are not used).
    center: `[len(layers), hidden]`. Without components `scale` is `[len(layers), hidden]` (multiplied); with
    components `projection` is `[len(layers), hidden, k]` and includes the standardisation.
    logprob_center, logprob_scale: `[statistics]` (multiplied) or None when the token statistics are not used.
    """

    layers: list[int]
    center: np.ndarray | None = None
    scale: np.ndarray | None = None
    projection: np.ndarray | None = None
    logprob_center: np.ndarray | None = None
    logprob_scale: np.ndarray | None = None

    @property
    def n_hidden(self) -> int:
        if self.projection is not None:
            return self.projection.shape[2]
        return 0 if self.center is None else self.center.size

    @property
    def n_logprob(self) -> int:
        return 0 if self.logprob_center is None else self.logprob_center.size

    def transform(self, hidden: np.ndarray | None, logprob: np.ndarray | None) -> np.ndarray:
        """fp32 `[n, n_hidden + n_logprob]`; `hidden` holds the chosen layers only."""
        parts = []
        if self.center is not None:
            assert hidden is not None
            parts.append(self._transform_hidden(hidden))
        if self.logprob_center is not None:
            assert logprob is not None
            parts.append((logprob.astype(np.float32) - self.logprob_center) * self.logprob_scale)
        return np.concatenate(parts, axis=1)

    def _transform_hidden(self, hidden: np.ndarray) -> np.ndarray:
        assert self.center is not None
        if self.projection is None:
            return ((hidden.astype(np.float32) - self.center) * self.scale).reshape(len(hidden), -1)
        out = np.zeros((len(hidden), self.projection.shape[2]), dtype=np.float32)
        for i in range(len(self.center)):
            out += (hidden[:, i].astype(np.float32) - self.center[i]) @ self.projection[i]
        return out

    def fold(self, coef: np.ndarray) -> tuple[np.ndarray | None, np.ndarray | None]:
        """`coef` `[k, n_hidden + n_logprob]` as weights on the centred raw reading: `[k, len(layers), hidden]` and
        `[k, statistics]`."""
        hidden, logprob = coef[:, : self.n_hidden], coef[:, self.n_hidden :]
        weight = None
        if self.projection is not None:
            weight = np.stack([self.projection.astype(np.float64) @ row for row in hidden]).astype(np.float32)
        elif self.scale is not None:
            weight = (hidden.reshape(-1, *self.scale.shape) * self.scale).astype(np.float32)
        if self.logprob_scale is None:
            return weight, None
        return weight, (logprob * self.logprob_scale).astype(np.float32)


def fit(
    hidden: np.ndarray | None,
    logprob: np.ndarray | None,
    rows: np.ndarray,
    layers: list[int],
    pca: Literal["auto"] | int,
    seed: int,
) -> Features:
    """Fit standardisation and principal components on `rows` alone.

    hidden: `[n, len(layers), hidden]`, already the chosen layers, or None; logprob: `[n, statistics]` or None; rows:
    indices.
    """
    parts: dict[str, Any] = {}
    if hidden is not None:
        parts |= _fit_hidden(hidden, rows, pca, seed)
    if logprob is not None:
        mean, std = _spread(logprob[rows].astype(np.float32))
        parts |= {"logprob_center": mean, "logprob_scale": 1 / std}
    return Features(layers=layers if hidden is not None else [], **parts)


def _fit_hidden(hidden: np.ndarray, rows: np.ndarray, pca: Literal["auto"] | int, seed: int) -> dict[str, np.ndarray]:
    n_layers, width = hidden.shape[1:]
    center = np.empty((n_layers, width), dtype=np.float32)
    std = np.empty_like(center)
    k = n_components(pca, len(rows), n_layers * width)
    few = rows
    if k and len(rows) > PCA_ROWS:
        few = np.sort(np.random.default_rng(seed).choice(rows, PCA_ROWS, replace=False))
    gram = np.zeros((len(few), len(few)), dtype=np.float32)
    for i in range(n_layers):
        x = hidden[rows, i].astype(np.float32)
        center[i], std[i] = _spread(x)
        if k:
            z = ((x if few is rows else hidden[few, i].astype(np.float32)) - center[i]) / std[i]
            gram += z @ z.T
    if not k:
        return {"center": center, "scale": 1 / std}

    # Far fewer rows than inputs: the rows x rows Gram matrix gives the same components as an SVD.
    from scipy.linalg import eigh

    values, vectors = eigh(gram, subset_by_index=[len(few) - k, len(few) - 1])
    keep = np.flatnonzero(values > 1e-5 * max(values[-1], 1e-12))[::-1]
    if not len(keep):
        keep = np.array([k - 1])
    values, vectors = np.maximum(values[keep], 1e-12), vectors[:, keep]
    vectors *= np.sign(vectors[np.abs(vectors).argmax(0), np.arange(len(keep))])  # a fixed sign
    unit = np.sqrt(values.mean() / len(few))  # one factor for all: mean variance 1, relative variances kept
    loadings = vectors / np.sqrt(values) / unit
    projection = np.empty((n_layers, width, len(keep)), dtype=np.float32)
    for i in range(n_layers):
        z = (hidden[few, i].astype(np.float32) - center[i]) / std[i]
        projection[i] = (z.T @ loadings) / std[i][:, None]
    return {"center": center, "projection": projection}

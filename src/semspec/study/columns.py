"""The samples of a project as columns that a learner takes, fitted on the rows it may see, and predictions out of fold.

A block of columns is named by what it is made of (`BLOCKS`). Files in, arrays out; knows nothing of learners' insides.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter
from typing import cast

import numpy as np
import pandas as pd

from semspec import files
from semspec.errors import UserError
from semspec.probe import features, linear
from semspec.probe.crossvalidation import make_folds
from semspec.probe.features import Features
from semspec.probe.linear import Loss
from semspec.rules import ratio
from semspec.schema import Settings
from semspec.semantics.labels import check_samples
from semspec.study.learners import LEARNERS, weighted

ROLES = ("target", "draft")
SHARED = 16  # directions of a projection that all layers share
# name -> (layers of the hidden states, principal components, token statistics too?)
BLOCKS = {
    "mean logprob": ("mean", 0, False),
    "five statistics": ("five", 0, False),
    "statistics": ("none", 0, True),
    "last layer": ("last", 64, False),
    "all layers": ("all", 64, False),
    "all layers, 256": ("all", 256, False),
    "shared projection": ("shared", SHARED, False),
    "all layers + statistics": ("all", 64, True),
    "all layers, 256 + statistics": ("all", 256, True),
    "last layer + statistics": ("last", 64, True),
}


@dataclass
class Table:
    """Samples with labels, and what both models saw of them.

    rows: samples.parquet with label_target, label_draft, cluster; hidden: {role: fp16 `[n, layers, hidden]`};
    statistics: {role: fp32 `[n, statistics]`}.
    """

    rows: pd.DataFrame
    hidden: dict[str, np.ndarray]
    statistics: dict[str, np.ndarray]
    fold: np.ndarray
    settings: Settings
    truth: pd.DataFrame | None = None  # true labels, where they can be computed
    _kept: dict[tuple[object, ...], np.ndarray] = field(default_factory=dict)

    @classmethod
    def load(cls, settings: Settings, root: Path) -> Table:
        """`UserError` where a stage has not run."""
        from semspec.engine.statistics import table

        samples = files.read_parquet(root / "data/samples/samples.parquet")
        labels = files.read_parquet(root / "data/labels.parquet")
        digest = files.sha256(root / "data/samples/samples.parquet")
        check_samples(labels, digest, "cluster")
        rows = samples.merge(labels[["sample_id", "cluster", "p_draft", "p_target"]], on="sample_id", how="left")
        rows = rows.rename(columns={"p_draft": "label_draft", "p_target": "label_target"})
        hidden, statistics = {}, {}
        for role in ROLES:
            tensors = files.read_safetensors(root / f"data/samples/{role}.safetensors")
            hidden[role], statistics[role] = tensors["hidden"], table(tensors)
        if not len(rows) == len(hidden["draft"]) == len(hidden["target"]):
            raise UserError("the samples and their states are not of the same run; run `semspec run` first")
        if rows[["label_draft", "label_target"]].isna().any().any():
            raise UserError("a study needs every sample's label under both models; set cluster.labels to cross")
        path = root / "data/true_labels.parquet"
        truth = files.read_parquet(path) if path.exists() else pd.DataFrame()
        check_samples(truth, digest, "truth")
        fold = make_folds(rows["question_id"].to_numpy(), settings.train.folds, settings.seed)
        return cls(rows, hidden, statistics, fold, settings, truth if len(truth) else None)

    @property
    def draft(self) -> np.ndarray:
        """`[n]` bool: written by the draft, as every step that has to be judged."""
        return (self.rows["author"] == "draft").to_numpy()

    @property
    def questions(self) -> np.ndarray:
        return self.rows["question_id"].to_numpy()

    def label(self, of: str) -> np.ndarray:
        """`[n]`: the semantic probability under a role, or the acceptance min(1, p / q) ("decision")."""
        target, draft = (self.rows[f"label_{r}"].to_numpy(float) for r in ROLES)
        return ratio(target, draft) if of == "decision" else target if of == "target" else draft

    def reference(self, of: str) -> np.ndarray:
        """What predictions are held against: the truth where it is known, else the labels."""
        if self.truth is None:
            return self.label(of)
        true = self.rows[["sample_id"]].merge(self.truth, on="sample_id", how="left")
        if of != "decision":
            return true[f"p_{of}"].to_numpy(float)
        return ratio(true["p_target"].to_numpy(float), true["p_draft"].clip(lower=1e-3).to_numpy(float))

    def columns(self, role: str, block: str, fit_on: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Columns `[n, d]` of one role's view of every row, and their weights `[d]`; fitted on rows `fit_on`."""
        layers, components, joined = BLOCKS[block]
        if layers in ("mean", "five"):
            x = self.statistics[role][:, : 1 if layers == "mean" else 5]
            fitted = features.fit(None, x, fit_on, [], 0, 0)
            return fitted.transform(None, x), np.ones(x.shape[1])
        parts: list[np.ndarray] = []
        n_hidden = 0
        if layers != "none":
            parts.append(self._states(role, layers, components, fit_on))
            n_hidden = parts[0].shape[1]
        if joined:
            x = self.statistics[role]
            parts.append(features.fit(None, x, fit_on, [], 0, 0).transform(None, x))
        width = parts[-1].shape[1] if joined else 0
        return np.concatenate(parts, axis=1), linear.block_weight(n_hidden, width)

    def layer(self, role: str, layer: int, fit_on: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """One layer's standardised states and their weights."""
        x = features.fit(self.hidden[role][:, [layer]], None, fit_on, [layer], 0, 0).transform(
            self.hidden[role][:, [layer]], None
        )
        return x, linear.block_weight(x.shape[1], 0)

    def _states(self, role: str, layers: str, components: int, fit_on: np.ndarray) -> np.ndarray:
        key = (role, layers, components, hash(fit_on.tobytes()))
        if key not in self._kept:
            hidden = self.hidden[role][:, -1:] if layers == "last" else self.hidden[role]
            chosen = list(range(hidden.shape[1]))
            if layers == "shared":
                x = _shared(hidden, fit_on)
            else:
                fitted: Features = features.fit(hidden, None, fit_on, chosen, components, self.settings.seed)
                x = fitted.transform(hidden, None)
            if len(self._kept) > 40:
                self._kept.pop(next(iter(self._kept)))
            self._kept[key] = x
        return self._kept[key]


def _shared(hidden: np.ndarray, fit_on: np.ndarray) -> np.ndarray:
    """`SHARED` directions common to all (standardised) layers; columns `[n, layers * SHARED]`."""
    from scipy.linalg import eigh

    n_layers, width = hidden.shape[1:]
    spread = []
    covariance = np.zeros((width, width), dtype=np.float64)
    for i in range(n_layers):
        x = hidden[fit_on, i].astype(np.float32)
        mean, std = x.mean(0), np.maximum(x.std(0), 1e-3 * np.abs(x.mean(0)) + 1e-6)
        z = (x - mean) / std
        covariance += z.T @ z / len(z)
        spread.append((mean, std))
    directions = eigh(covariance, subset_by_index=[width - SHARED, width - 1])[1].astype(np.float32)
    out = [((hidden[:, i].astype(np.float32) - m) / s) @ directions for i, (m, s) in enumerate(spread)]
    x = np.concatenate(out, axis=1)
    return x / x[fit_on].std()


@dataclass
class Found:
    """Predictions out of fold (NaN for rows outside), seconds of all fits, microseconds of one step's prediction."""

    raw: np.ndarray
    fit_seconds: float
    step_us: float


def out_of_fold(
    table: Table,
    of: str,
    block: str | int,
    learner: str,
    label: np.ndarray | None = None,
    allowed: np.ndarray | None = None,
    importance: np.ndarray | None = None,
) -> Found:
    """Predict `of` ("target", "draft" or "decision") for every row from rows of other questions.

    block: a name of `BLOCKS`, or the number of one layer. label: in place of the table's. allowed: the rows that may be
    learned from, `[n]` bool. importance: how much each row counts `[n]`, for a linear learner named by its loss. The
    decision reads both models' views.
    """
    y = table.label(of) if label is None else label
    roles = ROLES if of == "decision" else (of,)
    usable = ~np.isnan(y) & (table.draft if of == "decision" else True) & (True if allowed is None else allowed)
    raw, seconds, step = np.full(len(y), np.nan), 0.0, []
    for k in np.unique(table.fold):
        rows, held = np.flatnonzero(usable & (table.fold != k)), np.flatnonzero(table.fold == k)
        made = [table.layer(r, block, rows) if isinstance(block, int) else table.columns(r, block, rows) for r in roles]
        x, weight = np.concatenate([m[0] for m in made], axis=1), np.concatenate([m[1] for m in made])
        started = perf_counter()
        learn = LEARNERS[learner] if importance is None else weighted(cast(Loss, learner), importance[rows])
        predict = learn(x[rows], weight, y[rows], table.questions[rows], table.settings.train, table.settings.seed)
        seconds += perf_counter() - started
        raw[held] = predict(x[held])
        started = perf_counter()
        for _ in range(10):
            predict(x[held[:1]])
        step.append((perf_counter() - started) / 10)
    return Found(raw, seconds, 1e6 * float(np.median(step)))

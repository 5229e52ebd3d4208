"""The rules by which a drafted step is kept, as plain functions of what the probes say.

The one place for them: decoding decides with these and the evaluation of probes judges with these. The rules' names and
numbers are the section `decide` of params.yaml. Knows arrays only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from semspec.schema import Decide

SCORES = {"ratio": "p / q", "p": "p", "joint": "the joint predictor's"}


def ratio(p: np.ndarray, q: np.ndarray) -> np.ndarray:
    """min(1, p / q) `[n]` (SemanticSpec, Algorithm 1, line 8), also at q = 0; NaN where p or q is not a number."""
    p, q = np.asarray(p, float), np.asarray(q, float)
    with np.errstate(divide="ignore", invalid="ignore"):
        out = np.where(p >= q, 1.0, p / q)
    return np.where(np.isnan(p) | np.isnan(q), np.nan, out)


def acceptance(score: np.ndarray, bias: float = 0.0, threshold: float | None = None) -> np.ndarray:
    """Acceptance probability `[n]` of a rule's score: min(1, exp(bias) * score), 0 where that is not a number.

    With a `threshold` it is 1 where that reaches the threshold, else 0: nothing is left to chance.
    """
    score = np.asarray(score, float)
    a = np.where(np.isnan(score), 0.0, np.clip(np.exp(bias) * score, 0.0, 1.0))
    return a if threshold is None else (a >= threshold).astype(float)


def in_words(decide: Decide) -> str:
    """The decision rule as a sentence."""
    score = SCORES[decide.rule]
    if decide.bias:
        score = f"exp({decide.bias:g}) * ({score})"
    if decide.threshold is None:
        return f"a drafted step is kept with probability min(1, {score})"
    return f"a drafted step is kept where min(1, {score}) is at least {decide.threshold:g}"

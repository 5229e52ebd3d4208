"""From what both models computed over drafted steps to the probability with which each is kept.

Asks the probes and applies the rule of `decide`. Knows neither how the probes were trained nor what is done with a
verdict.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from semspec.decoding.base import JointPredictor, Predictor
from semspec.engine.base import Step
from semspec.rules import acceptance, ratio
from semspec.schema import Decide


class Judgement(NamedTuple):
    """Of one drafted step: semantic probability under target and draft, the acceptance probability, whether either
    probe met a state far from those it was trained on, and the rule's score (before bias and threshold).
    """

    p: float
    q: float
    a: float
    far: bool
    score: float


@dataclass(frozen=True)
class Judge:
    """Both probes and, for the rule `joint`, the predictor of the decision itself."""

    q: Predictor
    p: Predictor
    joint: JointPredictor | None = None
    decide: Decide = field(default_factory=Decide)

    def __post_init__(self) -> None:
        if self.decide.rule == "joint" and self.joint is None:
            raise ValueError("the rule 'joint' needs a joint predictor")

    @property
    def layers(self) -> dict[str, Sequence[int]]:
        """The layers of each model that it has to see."""
        return {"draft": self.q.layers, "target": self.p.layers}

    def __call__(
        self, written: Sequence[Step], read: Sequence[Step], question: str = "", said: Sequence[str] = ()
    ) -> list[Judgement]:
        """Judge drafted steps as the draft wrote them and as the target read them; the texts are not looked at."""
        if not written:
            return []
        views = {"draft": _view(written), "target": _view(read)}
        p, q = self.p.predict(*views["target"]), self.q.predict(*views["draft"])
        if self.decide.rule == "joint":
            assert self.joint is not None
            score = self.joint.predict(views)
        else:
            score = ratio(p, q) if self.decide.rule == "ratio" else np.asarray(p, float)
        a = acceptance(score, self.decide.bias, self.decide.threshold)
        far = _far(self.p, views["target"][0]) | _far(self.q, views["draft"][0])
        if self.decide.far == "reject":
            a = np.where(far, 0.0, a)
        columns = (np.asarray(p), np.asarray(q), a, far, np.asarray(score))
        rows = zip(*(c.tolist() for c in columns), strict=True)
        return [Judgement(*row) for row in rows]


def _far(predictor: Predictor, hidden: np.ndarray) -> np.ndarray:
    """`[n]` bool; all False for a predictor that cannot tell."""
    found = predictor.far(hidden) if hasattr(predictor, "far") else None
    return np.zeros(len(hidden), dtype=bool) if found is None else found


def _view(steps: Sequence[Step]) -> tuple[np.ndarray, np.ndarray]:
    """`[n, observed layers, hidden]` and `[n, statistics]`: what one model computed over the steps."""
    return np.stack([s.pooled for s in steps]), np.stack([s.statistics for s in steps])

"""`semantic` with p and q drawn uniformly from [0, 1] in place of predictions: the paper's ablation (its table 1).

What a decision without any knowledge costs and gives, at the same number of passes: a step is kept with probability
min(1, p / q), three times in four on average. Needs no probe.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence

import numpy as np

from semspec.decoding.acceptance import Judgement
from semspec.decoding.base import Answer, OnStep
from semspec.decoding.semantic import Semantic
from semspec.engine.base import Step
from semspec.rules import ratio


class Chance:
    """Judges by lot; with one seed, the same step after the same text always draws the same two numbers."""

    layers: Mapping[str, Sequence[int]] = {"draft": (), "target": ()}

    def __init__(self, seed: int = 0):
        self.seed = seed

    def __call__(
        self, written: Sequence[Step], read: Sequence[Step], question: str, said: Sequence[str]
    ) -> list[Judgement]:
        out = []
        for i, step in enumerate(written):
            text = "\0".join([question, *said, *(s.text for s in written[:i]), step.text])
            p, q = np.random.default_rng([self.seed, zlib.crc32(text.encode("utf-8", "surrogatepass"))]).random(2)
            a = float(ratio(np.array([p]), np.array([q]))[0])
            out.append(Judgement(float(p), float(q), a, False, a))
        return out


class SemanticRandom(Semantic):
    """`Semantic` that knows nothing. Each answer has lots of its own, drawn by its seed."""

    name = "semantic_random"

    def answer(self, question: str, seed: int = 0, on_step: OnStep | None = None) -> Answer:
        own = Semantic(self.setup, self.draft, self.target, Chance(seed), self.gamma, self.lookup)
        return own.answer(question, seed, on_step)

"""Plain decoding by the target, step by step: what the other methods are measured against.

The session keeps its cache between steps and no hidden state is pooled, so cutting the answer into steps
costs no model pass. Knows no draft.
"""

from __future__ import annotations

from semspec.decoding.base import Answer, OnStep, Setup, Transcript
from semspec.engine.base import Engine


class Target:
    """The target writes everything. A step at the step limit is marked truncated; a new one goes on."""

    name = "target"

    def __init__(self, setup: Setup, target: Engine):
        self.setup = setup
        self.target = target

    def answer(self, question: str, seed: int = 0, on_step: OnStep | None = None) -> Answer:
        out = Transcript(self.setup, self.target, seed, on_step)
        self.target.observe([])
        session = self.target.session(self.setup.prompt(self.target, question))
        while not out.done:
            with out.phase("write"):
                step = session.generate(self.setup.step_ends, out.sampling(), out.step_limit(self.target))
            out.wrote(step)
        return out.answer()

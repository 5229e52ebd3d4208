"""Speculative sampling (Leviathan et al., 2023): the draft draws k tokens, the target verifies them in one pass. Exact.

The rule itself, min(1, p / q) and the residual, is where the logits are (`engine.sampling.verify`); how the draft is
kept in step with what the target settled, in `Drafts`. Greedy, it writes what the target alone would write, token for
token.
"""

from __future__ import annotations

from semspec.decoding.base import Answer, OnStep, Setup, Transcript
from semspec.decoding.drafts import Drafts
from semspec.engine.base import Engine
from semspec.errors import UserError


class SpeculativeSampling:
    """Token-level speculation. Draft and target must share a vocabulary; `UserError` else."""

    name = "speculative_sampling"

    def __init__(self, setup: Setup, draft: Engine, target: Engine, length: int = 5):
        if draft.vocab_id != target.vocab_id:
            raise UserError(
                f"speculative_sampling needs one vocabulary for both models; {draft.name} and {target.name} have two"
            )
        self.setup, self.draft, self.target, self.length = setup, draft, target, length

    def answer(self, question: str, seed: int = 0, on_step: OnStep | None = None) -> Answer:
        out = Transcript(self.setup, self.target, seed, on_step)
        self.draft.observe([])
        self.target.observe([])
        session = self.target.session(self.setup.prompt(self.target, question))
        drafts = Drafts(self.draft.session(self.setup.prompt(self.draft, question)), self.length, out)
        while not out.done:
            with out.phase("write"):
                step = session.generate(self.setup.step_ends, out.sampling(), out.step_limit(self.target), drafts)
            out.wrote(step)
        return out.answer()

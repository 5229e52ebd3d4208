"""Speculative sampling (Leviathan et al., 2023): the draft draws k tokens, the target verifies them in one pass. Exact.

The rule itself, min(1, p / q) and the residual, is where the logits are (`engine.sampling.verify`); here the draft is
kept in step with what the target settled. Greedy, it writes what the target alone would write, token for token.
"""

from __future__ import annotations

from collections.abc import Sequence

from semspec.decoding.base import Answer, OnStep, Setup, Transcript
from semspec.engine.base import Engine, Proposal, Segment, Session
from semspec.errors import UserError


class Drafts:
    """The draft's next tokens after any answer; its session follows the target's text."""

    def __init__(self, writer: Session, length: int, out: Transcript):
        self.writer, self.length, self.out = writer, length, out
        self.start = len(writer.tokens)

    def __call__(self, answer: Sequence[int]) -> Proposal:
        with self.out.phase("draft"):
            return self._follow(answer)

    def _follow(self, answer: Sequence[int]) -> Proposal:
        mine = self.writer.tokens[self.start :]
        shared = next((i for i, (a, b) in enumerate(zip(mine, answer, strict=False)) if a != b), None)
        shared = min(len(mine), len(answer)) if shared is None else shared
        if shared < len(mine):
            self.writer.rollback(len(mine) - shared)
        if shared < len(answer):
            self.writer.follow([Segment("", tokens=list(answer[shared:]))])
        left = self.out.setup.max_tokens - len(answer)
        return self.writer.draw(min(self.length, left), self.out.sampling())


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
            drafting = out.phases["draft"]
            with out.phase("write"):
                step = session.generate(self.setup.step_ends, out.sampling(), out.step_limit(self.target), drafts)
            out.phases["write"] -= out.phases["draft"] - drafting  # the target's pass asks for the drafts
            out.wrote(step)
        return out.answer()

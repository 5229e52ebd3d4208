"""Plain decoding by the draft, step by step: the fastest and the worst that speculation can become.

The target lends its tokenizer for the budget and the counts; it computes nothing.
"""

from __future__ import annotations

from semspec.decoding.base import Answer, OnStep, Setup, TraceStep, Transcript
from semspec.engine.base import Engine, segment


class Draft:
    """The draft writes everything. A step at the step limit is marked truncated; a new one goes on."""

    name = "draft"

    def __init__(self, setup: Setup, draft: Engine, target: Engine):
        self.setup = setup
        self.draft = draft
        self.target = target

    def answer(self, question: str, seed: int = 0, on_step: OnStep | None = None) -> Answer:
        out = Transcript(self.setup, self.target, seed, on_step)
        self.draft.observe([])
        session = self.draft.session(self.setup.prompt(self.draft, question))
        while not out.done:
            with out.phase("draft"):
                step = session.generate(self.setup.step_ends, out.sampling(), out.step_limit(self.draft))
            tokens = segment(step, self.draft, self.target).tokens
            if not tokens:  # control tokens without text would never use up the budget
                break
            truncated = step.stop == "length"
            out.add(TraceStep("draft", step.text, len(tokens), truncated=truncated), tokens, step.eos)
        return out.answer()

"""Prompt lookup (Saxena, 2023): the target, with n-gram matches in the text so far as the draft. Exact.

What is proposed was drawn from no distribution, so the rule is the plainest one: at each place the target's own token
is drawn, and a proposed token is kept where it is the same (`Session.generate`).
"""

from __future__ import annotations

from semspec.decoding.base import Answer, OnStep, Setup, Transcript
from semspec.decoding.lookup import PromptLookup as Lookup
from semspec.engine.base import Engine


class PromptLookup:
    """The target writes, several tokens a pass where the text repeats itself."""

    name = "prompt_lookup"

    def __init__(self, setup: Setup, target: Engine, ngram: int = 3, length: int = 4):
        self.setup, self.target, self.ngram, self.length = setup, target, ngram, length

    def answer(self, question: str, seed: int = 0, on_step: OnStep | None = None) -> Answer:
        out = Transcript(self.setup, self.target, seed, on_step)
        self.target.observe([])
        prompt = self.setup.prompt(self.target, question)
        session, lookup = self.target.session(prompt), Lookup(prompt, self.ngram, self.length, self.setup.max_tokens)
        while not out.done:
            with out.phase("write"):
                step = session.generate(self.setup.step_ends, out.sampling(), out.step_limit(self.target), lookup)
            out.wrote(step)
        return out.answer()

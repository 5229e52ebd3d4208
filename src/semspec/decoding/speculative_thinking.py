"""Speculative thinking (Yang et al., 2025): the draft writes; the target steps in where the draft's mood says so.

After each step the draft looks ahead a few tokens. Words in them tell whether it is confident (positive), in doubt
(negative) or about to check (verify). Neutral: the draft goes on. Else its look-ahead is dropped and the target writes
a little, and more if it starts to check; after many doubts the target is made to look for a wrong step. No probe, no
score, nothing exact. The words and numbers are the paper's.
"""

from __future__ import annotations

from itertools import takewhile

import numpy as np

from semspec.decoding.base import Answer, OnStep, Setup, TraceStep, Transcript
from semspec.engine.base import Engine, Proposal, Sampling, Segment, Session, Step, never, segment
from semspec.engine.statistics import NOTHING as NOTHING_SCORED

POSITIVE = ("yeah", "yes", "final answer", "confident")
NEGATIVE = ("wait", "alternatively", "hold on", "another")
VERIFY = ("verify", "think again", "recap", "check")
LOOK_AHEAD = 20  # tokens
TAKEOVER = 20  # tokens of the target
CHECKING = 125  # tokens more when it checks
DOUBTS, MORE_DOUBTS, MOST_DOUBTS = 15, 5, 30  # negatives before a review, rising after each
REVIEW, LONGER, LONGEST = 125, 25, 200  # tokens of a review, rising after each
NOTHING = Step([], "", NOTHING_SCORED, np.empty(0))
REVIEW_LINE = "Let me go over the steps so far and look for a wrong one.\n\n"


def mood(text: str) -> str:
    """`neutral`, `positive`, `negative` or `verify`, by the words that occur most; ties are negative."""
    low = text.lower()
    counts = {
        name: sum(low.count(word) for word in words)
        for name, words in (("positive", POSITIVE), ("negative", NEGATIVE), ("verify", VERIFY))
    }
    best = max(counts.values())
    if not best:
        return "neutral"
    leaders = [name for name, n in counts.items() if n == best]
    return leaders[0] if len(leaders) == 1 else "negative"


class SpeculativeThinking:
    """The draft writes, the target takes over where the draft's look-ahead is not neutral."""

    name = "speculative_thinking"

    def __init__(self, setup: Setup, draft: Engine, target: Engine, first_tokens: int = 0):
        self.setup, self.draft, self.target, self.first_tokens = setup, draft, target, first_tokens

    def answer(self, question: str, seed: int = 0, on_step: OnStep | None = None) -> Answer:
        out = Transcript(self.setup, self.target, seed, on_step)
        self.draft.observe([])
        self.target.observe([])
        writer = self.draft.session(self.setup.prompt(self.draft, question))
        reader = self.target.session(self.setup.prompt(self.target, question))
        self._start = len(writer.tokens)
        self._unread: list[Segment] = []  # what the draft wrote, until the target needs it
        doubts, trigger, review = 0, DOUBTS, REVIEW
        if self.first_tokens:
            self._take_over(writer, reader, out, self.first_tokens)
        ahead, sampling = NOTHING, out.sampling()
        while not out.done and self._draft(writer, out, ahead, sampling) and not out.done:
            sampling = out.sampling()
            with out.phase("draft"):
                ahead = writer.generate(never, sampling, min(LOOK_AHEAD, out.left))
            feeling = mood(ahead.text)
            writer.rollback(len(ahead.tokens))
            if feeling == "neutral":
                continue
            out.discard(len(segment(ahead, self.draft, self.target).tokens))
            ahead, sampling = NOTHING, out.sampling()
            doubts += feeling == "negative"
            if doubts >= trigger:
                self._insert(REVIEW_LINE, writer, out)
                self._take_over(writer, reader, out, review)
                doubts, trigger, review = 0, min(trigger + MORE_DOUBTS, MOST_DOUBTS), min(review + LONGER, LONGEST)
            elif any(word in self._take_over(writer, reader, out, TAKEOVER).lower() for word in VERIFY):
                self._take_over(writer, reader, out, CHECKING)
        return out.answer()

    def _draft(self, writer: Session, out: Transcript, ahead: Step, sampling: Sampling) -> bool:
        """The draft's next step; False when it has nothing to say. What it wrote while looking ahead is not redone.

        The same random numbers write the same tokens, so the look-ahead is a proposal that one pass verifies. What lies
        behind the step is thrown away.
        """
        known = [*writer.tokens[self._start :], *ahead.tokens]
        again = (lambda answer: Proposal(known[len(answer) :])) if ahead.tokens else None
        with out.phase("draft"):
            step = writer.generate(self.setup.step_ends, sampling, out.step_limit(self.draft), again)
        same = (a == b for a, b in zip(ahead.tokens, step.tokens, strict=False))
        lost = ahead.tokens[sum(takewhile(bool, same)) :]
        shared = self.draft.vocab_id == self.target.vocab_id
        out.discard(len(lost if shared else self.target.encode(self.draft.decode(lost))))
        made = segment(step, self.draft, self.target)
        if not made.tokens:  # control tokens without text would never use up the budget
            return False
        self._unread.append(made)
        cut = step.stop == "length"
        out.add(TraceStep("draft", step.text, len(made.tokens), truncated=cut), made.tokens, step.eos)
        return True

    def _insert(self, line: str, writer: Session, out: Transcript) -> None:
        """Put a line of ours into the text; it counts as the draft's."""
        tokens = self.target.encode(line)
        writer.follow([Segment(line, tokens=self.draft.encode(line))])
        self._unread.append(Segment(line, tokens=tokens))
        out.add(TraceStep("draft", line, len(tokens)), tokens, False)

    def _take_over(self, writer: Session, reader: Session, out: Transcript, n_tokens: int) -> str:
        """The target reads what it has not seen and writes `n_tokens`; the text that it wrote."""
        if out.done:
            return ""
        if self._unread:
            out.verified(sum(len(s.tokens) for s in self._unread))
            with out.phase("verify"):
                reader.follow(self._unread)
            self._unread = []
        with out.phase("write"):
            step = reader.generate(never, out.sampling(), min(n_tokens, out.left))
        out.wrote(step)
        read = segment(step, self.target, self.draft)
        if read.tokens and not out.done:
            with out.phase("draft"):
                writer.follow([read])
        return step.text

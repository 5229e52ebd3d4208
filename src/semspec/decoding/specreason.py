"""SpecReason (Pan et al., 2025): the draft writes a step, the target gives it a mark from 0 to 9.

A step with a low mark is rewritten by the target. The target reads the step and, in a new chat turn behind it, the
question for a mark, in one pass; one token of its reply is looked at, and the turn is taken back. Not exact: a step
that is kept is the draft's.
"""

from __future__ import annotations

from typing import Literal

from semspec.decoding.base import Answer, OnStep, Setup, TraceStep, Transcript
from semspec.engine.base import Engine, Sampling, Segment, Session, segment

ASK = (
    "How sound is the last step of the solution above: is it correct, and does it help to solve the problem? "
    "Give it a mark from 0 (wrong or useless) to 9 (certainly right and useful). Reply with the digit alone."
)
BEGUN = "Mark: "
TOP = 10  # tokens whose probability is looked at


class PromptedScorer:
    """The target's own mark, divided by 9.

    `greedy`: its likeliest token, 0 unless that is a digit; `average`: the mean over its likely digits.
    """

    def __init__(self, target: Engine, scoring: Literal["greedy", "average"] = "greedy"):
        self.question = target.turn(ASK, BEGUN)
        self.digits = {}
        for digit in range(10):
            for text in (str(digit), f" {digit}"):
                tokens = target.encode(text)
                if len(tokens) == 1:
                    self.digits[tokens[0]] = digit
        self.scoring = scoring

    def __call__(self, reader: Session, step: Segment) -> tuple[float, int]:
        """(mark in [0, 1] of a step, tokens that the target read for it); the step stays in the session."""
        reader.follow([step, Segment("", tokens=self.question)])
        found = reader.draw(1, Sampling(temperature=1.0, top_k=TOP))
        reader.rollback(len(self.question))
        assert found.ids is not None and found.probs is not None
        marks = [(self.digits.get(int(t)), float(p)) for t, p in zip(found.ids[0], found.probs[0], strict=True)]
        return self._mark(marks) / 9, len(step.tokens) + len(self.question)

    def _mark(self, marks: list[tuple[int | None, float]]) -> float:
        if self.scoring == "greedy":
            return float(marks[0][0] or 0)
        known = [(digit, p) for digit, p in marks if digit is not None]
        return sum(d * p for d, p in known) / max(sum(p for _, p in known), 1e-9)


class SpecReason:
    """Steps whose mark reaches `threshold` stay; the first `first_steps` steps are the target's anyway."""

    name = "specreason"
    reads = True  # whether the target reads a drafted step before it is judged

    def __init__(
        self,
        setup: Setup,
        draft: Engine,
        target: Engine,
        scorer: PromptedScorer,
        threshold: float,
        first_steps: int = 0,
    ):
        self.setup, self.draft, self.target = setup, draft, target
        self.scorer, self.threshold, self.first_steps = scorer, threshold, first_steps

    def answer(self, question: str, seed: int = 0, on_step: OnStep | None = None) -> Answer:
        out = Transcript(self.setup, self.target, seed, on_step)
        self.draft.observe([])
        self.target.observe([])
        writer = self.draft.session(self.setup.prompt(self.draft, question))
        reader = self.target.session(self.setup.prompt(self.target, question))
        unread: list[Segment] = []  # kept steps that the target has not read
        while not out.done:
            step = drafted = None
            if len(out.trace) >= self.first_steps:
                with out.phase("draft"):
                    step = writer.generate(self.setup.step_ends, out.sampling(), out.step_limit(self.draft))
                drafted = segment(step, self.draft, self.target)
            if not step or not drafted or not drafted.tokens:
                if step and step.tokens:
                    writer.rollback(len(step.tokens))
                self._write(writer, reader, unread, out)
                continue
            mark = self._mark(reader, question, drafted, out)
            if mark >= self.threshold:
                cut = step.stop == "length"
                kept = TraceStep("draft", step.text, len(drafted.tokens), score=mark, accepted=True, truncated=cut)
                out.add(kept, drafted.tokens, step.eos)
                unread += [] if self.reads else [drafted]
            else:
                writer.rollback(len(step.tokens))
                if self.reads:
                    reader.rollback(len(drafted.tokens))
                lost = {"rejected_text": step.text, "rejected_tokens": len(drafted.tokens)}
                self._write(writer, reader, unread, out, score=mark, accepted=False, **lost)
        return out.answer()

    def _mark(self, reader: Session, question: str, drafted: Segment, out: Transcript) -> float:
        """The mark of a drafted step, in [0, 1]."""
        with out.phase("verify"):
            mark, n_tokens = self.scorer(reader, drafted)
        out.verified(n_tokens)
        return mark

    def _write(
        self, writer: Session, reader: Session, unread: list[Segment], out: Transcript, **fields: object
    ) -> None:
        """The target reads what it has not, and writes the step; the draft reads that."""
        if unread:
            with out.phase("verify"):
                reader.follow(unread)
            out.verified(sum(len(s.tokens) for s in unread))
            unread.clear()
        with out.phase("write"):
            step = reader.generate(self.setup.step_ends, out.sampling(), out.step_limit(self.target))
        out.wrote(step, **fields)
        read = segment(step, self.target, self.draft)
        if read.tokens and not out.done:
            with out.phase("draft"):
                writer.follow([read])

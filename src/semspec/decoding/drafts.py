"""Proposals by the draft model: its own next tokens, after whatever the target has settled.

Knows tokens only, of one vocabulary for both models; whoever verifies a proposal decides what becomes of it.
"""

from __future__ import annotations

from collections.abc import Sequence

from semspec.decoding.base import Transcript
from semspec.engine.base import Proposal, Segment, Session


class Drafts:
    """Up to `length` tokens a proposal. `writer` is a session of the draft that has read what `out` has settled."""

    def __init__(self, writer: Session, length: int, out: Transcript):
        self.writer, self.length, self.out = writer, length, out
        self.start = len(writer.tokens) - len(out.tokens)

    def __call__(self, answer: Sequence[int]) -> Proposal:
        with self.out.phase("draft", within="write"):  # the target's pass asks for it
            unread = self.unread(answer)
            if unread:
                self.writer.follow([Segment("", tokens=unread)])
            left = self.out.setup.max_tokens - len(answer)
            return self.writer.draw(min(self.length, left), self.out.sampling())

    def unread(self, answer: Sequence[int]) -> list[int]:
        """What the draft has not read of `answer`; what it wrote in the place of that is taken back."""
        mine = self.writer.tokens[self.start :]
        pairs = enumerate(zip(mine, answer, strict=False))
        shared = next((i for i, (a, b) in pairs if a != b), min(len(mine), len(answer)))
        self.writer.rollback(len(mine) - shared)
        return list(answer[shared:])

"""Proposals without a model: what followed the last few tokens the last time they were written.

Knows tokens only; whoever verifies a proposal decides what becomes of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from semspec.engine.base import Proposal


def continuation(tail: Sequence[int], corpus: Sequence[int], ngram: int, length: int, shortest: int = 1) -> list[int]:
    """Up to `length` tokens that follow the latest place in `corpus` where the longest end of `tail` stands.

    The end has at most `ngram` and at least `shortest` tokens. Empty when it stands nowhere with something after it.
    """
    if length < 1:
        return []
    for n in range(min(ngram, len(tail)), shortest - 1, -1):
        end = list(tail[-n:])
        for i in range(len(corpus) - n - 1, -1, -1):
            if list(corpus[i : i + n]) == end:
                return list(corpus[i + n : i + n + length])
    return []


class PromptLookup:
    """Looks in the prompt and in the answer so far, which may have `most` tokens where that is known."""

    def __init__(self, prompt: Sequence[int], ngram: int, length: int, most: int | None = None):
        self.prompt, self.ngram, self.length, self.most = list(prompt), ngram, length, most

    def __call__(self, answer: Sequence[int]) -> Proposal:
        text = [*self.prompt, *answer]
        length = self.length if self.most is None else min(self.length, self.most - len(answer))
        return Proposal(continuation(text, text, self.ngram, length))


class Lookup(NamedTuple):
    """What is looked up: n-grams of at most `ngram` tokens, of which each proposes up to `length`."""

    ngram: int
    length: int

    def of(self, prompt: Sequence[int]) -> PromptLookup:
        return PromptLookup(prompt, self.ngram, self.length)


class RejectedLookup:
    """Looks in a rejected draft. Two tokens must agree: one alone finds too much in a text this short."""

    def __init__(self, draft: Sequence[int], ngram: int, length: int):
        self.draft, self.ngram, self.length = list(draft), ngram, length

    def __call__(self, answer: Sequence[int]) -> Proposal:
        return Proposal(continuation(answer, self.draft, self.ngram, self.length, shortest=2))

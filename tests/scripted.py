"""A draft and a target that write what they are told to, methods on them, and what must hold of every answer."""

from __future__ import annotations

import dataclasses

import pytest
from fakes import FakeEngine, ScriptedProbe, blank_line

from semspec.decoding.acceptance import Judge
from semspec.decoding.base import Answer, Setup
from semspec.decoding.semantic import Semantic

DRAFT = ("one dog.\n\n", "two cats.\n\n", "three.\n\n", "so six")
TARGET = ("One hen.\n\n", "Two oxen here.\n\n", "Thrice.\n\n", "Thus 6")
YES, NO = 1.0, 0.0  # p of a draft step that is surely kept, surely rejected (q = 1)


def engines(chars: tuple[int, int] = (1, 1), draft=DRAFT, target=TARGET) -> tuple[FakeEngine, FakeEngine]:
    return FakeEngine("draft", draft, chars[0]), FakeEngine("target", target, chars[1])


def setup(max_tokens: int = 1000, max_step: int = 100, temperature: float = 0.0) -> Setup:
    return Setup("sys", blank_line, max_step, max_tokens, temperature)


def semantic(
    p: tuple[float, ...], q: tuple[float, ...] = (1.0,), gamma: int = 1, pair=None, **rules
) -> tuple[Semantic, FakeEngine, FakeEngine]:
    draft, target = pair or engines()
    return Semantic(setup(**rules), draft, target, Judge(ScriptedProbe(*q), ScriptedProbe(*p)), gamma), draft, target


def check(answer: Answer, looks_ahead: bool = False) -> None:
    """The equations between an answer's numbers; a method that `looks_ahead` throws away more than its steps show."""
    trace = answer.trace
    assert answer.draft_tokens + answer.target_tokens == answer.output_tokens
    assert answer.output_tokens == sum(s.n_tokens for s in trace)
    assert answer.offered == answer.accepted + sum(s.accepted is False for s in trace)
    rejected = sum(s.rejected_tokens for s in trace)
    assert answer.discarded_tokens >= rejected if looks_ahead else answer.discarded_tokens == rejected
    assert answer.accepted_tokens <= answer.verifier_tokens
    assert answer.text == "".join(s.text for s in trace)
    assert answer.seconds == pytest.approx(sum(s.seconds for s in trace))


def untimed(answer: Answer) -> Answer:
    trace = tuple(dataclasses.replace(s, seconds=0.0) for s in answer.trace)
    return dataclasses.replace(answer, trace=trace, seconds=0.0, phases={})

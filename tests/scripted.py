"""A draft and a target that write what they are told to, methods on them, and what must hold of every answer.

For engines that are not scripted: models of a few letters, and sessions that note what they are offered.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import NamedTuple

import pytest
import torch
from fakes import FakeEngine, ScriptedProbe, blank_line
from tokenizers import Tokenizer, decoders
from tokenizers.models import BPE
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from semspec.decoding.acceptance import Judge
from semspec.decoding.base import Answer, Setup
from semspec.decoding.semantic import Semantic
from semspec.engine.base import Proposal, Propose, Sampling, Session, Step, StepEnds
from semspec.engine.local import TextEngine
from semspec.engine.transformers import TransformersEngine

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


def letters(words: str) -> PreTrainedTokenizerFast:
    """Each letter of `words` a token, in this order, `<eos>` behind them."""
    tokenizer = Tokenizer(BPE(vocab={letter: i for i, letter in enumerate(words)}, merges=[]))
    tokenizer.decoder = decoders.Fuse()
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<eos>")


def lettered_engine(words: str, seed: int = 0, knows_eos: bool = True) -> TransformersEngine:
    """A random model of one layer that writes these letters and, if it `knows_eos`, EOS."""
    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=len(words) + knows_eos,
        hidden_size=16,
        intermediate_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        initializer_range=0.5,
        max_position_embeddings=64,
        eos_token_id=len(words),
    )
    return TransformersEngine(LlamaForCausalLM(config), letters(words), f"letters-{seed}")


class Offer(NamedTuple):
    """Tokens that were proposed when the answer had `at` of them."""

    at: int
    tokens: list[int]


class Watched:
    """A session that notes the proposals which its text is written from."""

    def __init__(self, session: Session):
        self.session, self.prompt_length = session, len(session.tokens)
        self.offers: list[Offer] = []

    def __getattr__(self, name: str):
        return getattr(self.session, name)

    @property
    def answer(self) -> list[int]:
        """The tokens behind the prompt."""
        return self.session.tokens[self.prompt_length :]

    def generate(
        self, step_ends: StepEnds, sampling: Sampling, max_tokens: int, propose: Propose | None = None
    ) -> Step:
        return self.session.generate(step_ends, sampling, max_tokens, propose and self._noting(propose))

    def rewrite(
        self, n_tokens: int, step_ends: StepEnds, sampling: Sampling, max_tokens: int, propose: Propose | None = None
    ) -> Step:
        self.offers.append(Offer(len(self.answer) - n_tokens, self.answer[-n_tokens:]))
        return self.session.rewrite(n_tokens, step_ends, sampling, max_tokens, propose and self._noting(propose))

    def _noting(self, propose: Propose) -> Propose:
        def noted(answer: Sequence[int]) -> Proposal:
            proposal = propose(answer)
            self.offers.append(Offer(len(answer), list(proposal.tokens)))
            return proposal

        return noted


def watch(engine: TextEngine) -> TextEngine:
    """The engine, which keeps the sessions that it opens from now on in `sessions`."""
    engine.sessions, plain = [], engine.session

    def session(prompt: Sequence[int]) -> Watched:
        engine.sessions.append(Watched(plain(prompt)))
        return engine.sessions[-1]

    engine.session = session
    return engine

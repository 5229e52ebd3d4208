"""The engine interface: what a language model must be able to do so that every method can run on it.

An `Engine` holds one model and its tokenizer. A `Session` is one text that grows: it has a cache of its own, can
write the next step, read a given step in one pass, and forget tokens again. `sample_many` and `read_many` do the same
for many contexts packed into one batch. Engines know nothing of methods, probes, labels or problems.

Token convention, the same when a model writes and when it reads: the hidden state of a token is the one computed
when that token is the INPUT, and the pooled state of a sequence covers all of its tokens (the last generated token,
EOS included, is fed before pooling). A layer's state is that decoder layer's output; for the last layer, before the
final norm.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

import numpy as np

from semspec.engine.statistics import Tokens, statistics

StopReason = Literal["step", "eos", "length", "read"]
# (text of the step so far, text that would come next) -> is the step complete before that next text?
StepEnds = Callable[[str, str], bool]
# of tokens that a model reads: their states and scores (`read`); all logits (exact verification, or a `read` with
# nothing observed); only what comes next (`follow`)
Wanted = Literal["judged", "verified", "followed"]


def never(text: str, upcoming: str) -> bool:
    """A `StepEnds` that never ends a step: generation runs to EOS or to the token limit."""
    return False


@dataclass(frozen=True)
class Sampling:
    """How the next token is drawn. `temperature=0` is greedy; otherwise nucleus sampling from the `top_k` logits."""

    temperature: float = 0.0
    top_p: float = 1.0
    top_k: int = 64
    seed: int = 0


@dataclass
class Step:
    """A piece of text that a model has written or read.

    tokens: its token ids, EOS included when the model ended there.
    text: its text, without EOS, delimiter included.
    scores: what the model thought of each token.
    pooled: `[layers, hidden]`, fp32 mean over the tokens of each observed layer's output.
    """

    tokens: list[int]
    text: str
    scores: Tokens
    pooled: np.ndarray
    stop: StopReason = "read"
    seconds: float = 0.0
    passes: int = 0  # model passes that writing it took
    offered: int = 0  # proposed tokens that were verified exactly
    kept: int = 0  # of those, the ones that stayed
    pooling: float = 0.0  # of `seconds`, those that summing the states up took

    @property
    def eos(self) -> bool:
        return self.stop == "eos"

    @property
    def statistics(self) -> np.ndarray:
        """Of its tokens, in the order of `semspec.engine.statistics.STATISTICS`."""
        return statistics(self.scores)


@dataclass
class Segment:
    """Text handed to a model to read: by tokens where the vocabulary is shared, else by text (+ EOS)."""

    text: str
    eos: bool = False
    tokens: list[int] = field(default_factory=list)


@dataclass
class Proposal:
    """Tokens that may come next, for a model to verify exactly.

    ids, probs: `[n_tokens, k]`, the distribution that each token was DRAWN from (probs 0 where it has fewer than k
    tokens); None for a guess that was drawn from nothing (a lookup).
    """

    tokens: list[int]
    ids: np.ndarray | None = None
    probs: np.ndarray | None = None


# the tokens after the prompt -> what may come next; no tokens when there is nothing to propose
Propose = Callable[[Sequence[int]], Proposal]


class Session(Protocol):
    """One growing text in one model's cache."""

    tokens: list[int]  # every token in the cache, prompt included

    def generate(
        self, step_ends: StepEnds, sampling: Sampling, max_tokens: int, propose: Propose | None = None
    ) -> Step:
        """Write until `step_ends`, EOS or `max_tokens`; the written tokens stay in the cache.

        With `propose` several tokens are verified in one pass, and the text is distributed as without it. Where a
        proposal says nothing of a distribution, and at temperature 0, the text IS the same, for the same seed (up to
        rounding): at each place the model's own token is drawn and the proposal counts only where it equals it. Else
        the rule is Leviathan et al.'s (2023): keep x with probability min(1, p(x) / q(x)), else draw from
        max(0, p - q). An engine that a server runs then gives `pooled` no rows.
        """

    def rewrite(
        self, n_tokens: int, step_ends: StepEnds, sampling: Sampling, max_tokens: int, propose: Propose | None = None
    ) -> Step:
        """Write a step in place of the last `n_tokens` tokens of the last `read`, which are the first proposal.

        The step is that of `rollback(n_tokens)` and `generate`, but the pass that read the tokens has computed what
        verifies them. `pooled` has no rows.
        """

    def draw(self, n_tokens: int, sampling: Sampling) -> Proposal:
        """Draw up to `n_tokens` next tokens, EOS the last one at most; the last one is not put into the cache."""

    def read(self, segments: Sequence[Segment]) -> list[Step]:
        """Read the segments, one after the other, in ONE forward pass; one `Step` each; they stay in the cache."""

    def follow(self, segments: Sequence[Segment]) -> None:
        """Put settled text behind this one, in ONE forward pass of which only what comes next is computed.

        No scores, no pooled states and no `rewrite`: for what is not judged.
        """

    def rollback(self, n_tokens: int) -> None:
        """Forget the last `n_tokens` tokens."""


class Engine(Protocol):
    """One language model, loaded."""

    name: str
    n_layers: int
    hidden_size: int
    vocab_id: str  # equal for two engines exactly when token ids mean the same text in both
    eos_id: int
    context: int | None  # tokens that a text may have, prompt included; None where the model names no limit
    passes: Counter[int]  # {tokens of a pass: how many such passes its sessions have made so far}

    def encode(self, text: str) -> list[int]: ...
    def decode(self, tokens: Sequence[int]) -> str: ...
    def chat(self, question: str, system: str) -> list[int]:
        """Prompt tokens of a chat turn that asks `question`, ready for the model's answer."""

    def turn(self, text: str, begun: str = "") -> list[int]:
        """Tokens that end the model's answer and open a new user turn with `text`, its reply begun with `begun`."""

    def observe(self, layers: Sequence[int] | None) -> None:
        """Pool only these layers from now on (`None` = all); `Step.pooled` has one row for each, in this order."""

    def session(self, prompt: Sequence[int]) -> Session: ...

    def sample_many(
        self,
        prompts: Sequence[Sequence[int]],
        n: int,
        step_ends: StepEnds,
        sampling: Sampling,
        max_tokens: int,
        seeds: Sequence[int],
    ) -> list[list[Step]]:
        """`n` continuations of each prompt, packed into one batch over shared prompt caches; `[len(prompts)][n]`.

        seeds: one per prompt (`sampling.seed` is not used); sample i of a prompt depends on (seed, i) alone.
        """

    def read_many(self, prompts: Sequence[Sequence[int]], segments: Sequence[Sequence[Segment]]) -> list[list[Step]]:
        """For each prompt, read each of its segments as an ALTERNATIVE continuation (not one after another)."""


def segment(step: Step, writer: Engine, reader: Engine) -> Segment:
    """What `writer` wrote, ready for `reader`, `tokens` in the reader's vocabulary, each one's own EOS.

    The tokens are handed over as they are where the vocabulary is shared; else the text is encoded anew, so
    their number may differ.
    """
    if writer.vocab_id == reader.vocab_id:
        tokens = list(step.tokens)
        if step.eos and writer.eos_id != reader.eos_id:
            tokens[-1] = reader.eos_id
    else:
        tokens = reader.encode(step.text) + [reader.eos_id] * step.eos
    return Segment(step.text, step.eos, tokens)

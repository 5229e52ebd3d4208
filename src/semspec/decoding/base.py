"""What every decoding method shares: the interface, the trace of an answer, and the one place for the rules.

`Setup` holds the prompt, the step ends, the budget and the sampling, so that no method can have its own.
A `Transcript` is one answer in the making: it cuts at the budget, counts, and keeps the time. Every count
is in tokens of the TARGET's tokenizer, EOS included, whichever model wrote them. Knows nothing of any
single method, of probes' insides or of grading.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, Literal, Protocol

import numpy as np

from semspec.engine.base import Engine, Sampling, Step, StepEnds
from semspec.errors import UserError
from semspec.schema import Settings

Author = Literal["draft", "target"]
PHASES = ("draft", "verify", "pool", "score", "write")


@dataclass(frozen=True)
class TraceStep:
    """One step of an answer, and how it came to be there.

    p, q: semantic probability of the JUDGED draft step under target and draft; a: the probability with
    which the rule keeps it; u: the uniform number drawn for it; accepted: the verdict, u < a. All five
    are None where nothing was judged. score: in [0, 1], the rule's before bias and threshold, or a prompted
    scorer's. far: a probe met a state unlike those it was trained on. After a rejection the author is the target, and
    the verdict belongs to the draft step in `rejected_text`.
    n_tokens: tokens that the step adds to the answer.
    rejected_tokens: draft tokens thrown away here: the rejected step's, those of the drafts behind it,
    what lay past the budget, and proposals that exact verification did not keep.
    passes: model passes in which the target wrote this step, one for each token unless proposals were kept.
    exact_offered, exact_accepted: tokens proposed while the target wrote, and those that exact verification kept;
    they are the target's, since they are distributed as its own.
    seconds: wall seconds since the step before was settled.
    truncated: cut at the step limit or at the budget.
    """

    author: Author
    text: str
    n_tokens: int
    p: float | None = None
    q: float | None = None
    a: float | None = None
    u: float | None = None
    score: float | None = None
    far: bool | None = None
    accepted: bool | None = None
    seconds: float = 0.0
    truncated: bool = False
    rejected_text: str | None = None
    rejected_tokens: int = 0
    passes: int = 0
    exact_offered: int = 0
    exact_accepted: int = 0


@dataclass(frozen=True)
class Answer:
    """A finished answer; every count in tokens of the target's tokenizer, EOS included.

    draft_tokens + target_tokens == output_tokens, by author.
    offered: draft steps that were judged; `accepted` of them stayed, with accepted_tokens. Drafts behind a
    rejection are not judged and count in discarded_tokens only.
    verifications: passes in which the target read drafts; verifier_tokens: tokens that it read in them, or to verify
    proposals. target_passes, exact_offered, exact_accepted: sums over the steps.
    seconds: wall seconds from the question to the last step, `on_step` not included.
    phases: of those, seconds spent on drafting, verifying (the target reads), scoring (pooled states to verdict) and
    writing (the target writes); what is missing to `seconds` is the prompts and the bookkeeping.
    """

    text: str
    finish_reason: Literal["eos", "length"]
    trace: tuple[TraceStep, ...]
    seconds: float
    output_tokens: int
    target_tokens: int
    draft_tokens: int
    discarded_tokens: int = 0
    verifier_tokens: int = 0
    offered: int = 0
    accepted: int = 0
    accepted_tokens: int = 0
    verifications: int = 0
    target_passes: int = 0
    exact_offered: int = 0
    exact_accepted: int = 0
    phases: Mapping[str, float] = field(default_factory=dict)


OnStep = Callable[[TraceStep], None]


class Method(Protocol):
    """A way to decode an answer."""

    name: str
    setup: Setup

    def answer(self, question: str, seed: int = 0, on_step: OnStep | None = None) -> Answer:
        """The answer to `question`; the same seed gives the same answer. `on_step` sees each settled step."""


class Predictor(Protocol):
    """A probe: semantic probability of steps from what one model computed while it wrote or read them."""

    @property
    def layers(self) -> Sequence[int]:
        """The layers that it reads, in this order; may be empty."""

    def predict(self, hidden: np.ndarray, logprob: np.ndarray) -> np.ndarray:
        """`[n, len(layers), hidden]` and `[n, statistics]` (`STATISTICS`) -> `[n]`, in (0, 1]."""


class JointPredictor(Protocol):
    """The decision itself, predicted from what both models computed; reads the layers that the probes read."""

    def predict(self, views: Mapping[str, tuple[np.ndarray, np.ndarray]]) -> np.ndarray:
        """{role: (hidden, logprob), as `Predictor.predict` takes them} -> acceptance probability `[n]`."""


Factory = Callable[[Settings, Engine | None, Engine | None, Mapping[str, Any]], Method]


def registry(*entries: tuple[str, Factory]) -> Mapping[str, Factory]:
    """An immutable {name: factory}; ValueError when a name comes twice."""
    names = [name for name, _ in entries]
    twice = sorted({n for n in names if names.count(n) > 1})
    if twice:
        raise ValueError(f"decoding method registered twice: {', '.join(twice)}")
    return MappingProxyType(dict(entries))


@dataclass(frozen=True)
class Setup:
    """The rules of the comparison, the same for every method.

    history: earlier turns of a conversation, (question, answer). raw: the question is the whole prompt, as it is.
    """

    system: str
    step_ends: StepEnds
    max_step_tokens: int
    max_tokens: int
    temperature: float = 0.0
    top_p: float = 1.0
    history: tuple[tuple[str, str], ...] = ()
    raw: bool = False

    @classmethod
    def of(cls, settings: Settings) -> Setup:
        from semspec.text import Splitter

        text, bench = settings.text, settings.bench
        return cls(
            text.system,
            Splitter(text.split).ends,
            text.max_step_tokens,
            bench.max_tokens,
            bench.temperature,
            bench.top_p,
        )

    def prompt(self, engine: Engine, question: str) -> list[int]:
        """The tokens in front of the answer to `question`, in `engine`'s vocabulary; `UserError` if it can't fit."""
        tokens = engine.encode(question) if self.raw else self._chat(engine, question)
        if engine.context is not None and len(tokens) + self.max_tokens > engine.context:
            raise UserError(
                f"a prompt of {len(tokens)} tokens and an answer of {self.max_tokens} don't fit into the "
                f"{engine.context} tokens of {engine.name}'s context; lower max_tokens, or shorten the question"
            )
        return tokens

    def _chat(self, engine: Engine, question: str) -> list[int]:
        questions = [*(asked for asked, _ in self.history), question]
        tokens = list(engine.chat(questions[0], self.system))
        for (_, said), following in zip(self.history, questions[1:], strict=True):
            tokens += engine.encode(said) + engine.turn(following)
        return tokens


@dataclass
class Transcript:
    """One answer in the making, in the target's tokens."""

    setup: Setup
    target: Engine
    seed: int
    on_step: OnStep | None = None
    tokens: list[int] = field(default_factory=list)
    trace: list[TraceStep] = field(default_factory=list)
    ended: bool = False  # by EOS
    verifier_tokens: int = 0
    verifications: int = 0
    discarded: int = 0  # draft tokens thrown away outside any step
    phases: dict[str, float] = field(default_factory=lambda: dict.fromkeys(PHASES, 0.0))
    _draws: int = 0
    _since: float = field(default_factory=time.perf_counter)

    @property
    def left(self) -> int:
        """Target tokens left in the budget."""
        return self.setup.max_tokens - len(self.tokens)

    @property
    def done(self) -> bool:
        return self.ended or self.left <= 0

    def sampling(self) -> Sampling:
        """For the next piece that either model writes; each call has random numbers of its own."""
        self._draws += 1
        state = np.random.SeedSequence([self.seed, self._draws]).generate_state(1)
        return Sampling(self.setup.temperature, self.setup.top_p, seed=int(state[0]))

    def step_limit(self, writer: Engine, planned: int = 0) -> int:
        """Tokens that `writer` may put into its next step, when `planned` target tokens are drafted already.

        A writer with another vocabulary is held by the step limit only; `add` cuts what goes past the budget.
        """
        limit = self.setup.max_step_tokens
        return min(limit, self.left - planned) if writer.vocab_id == self.target.vocab_id else limit

    def verified(self, n_tokens: int) -> None:
        """The target has read `n_tokens` drafted tokens in one pass."""
        self.verifications += 1
        self.verifier_tokens += n_tokens

    @contextmanager
    def phase(self, name: str, within: str | None = None) -> Iterator[None]:
        """The time spent inside counts for one of `PHASES`, and no longer for the one that it lies within."""
        started = time.perf_counter()
        yield
        seconds = time.perf_counter() - started
        self.phases[name] += seconds
        if within:
            self.phases[within] -= seconds

    def pooled(self, step: Step, within: str) -> None:
        """What summing up a step's hidden states took, inside a phase, is a phase of its own."""
        self.phases[within] -= step.pooling
        self.phases["pool"] += step.pooling

    def discard(self, n_tokens: int) -> None:
        """Draft tokens were written and thrown away without having been offered."""
        self.discarded += n_tokens

    def wrote(self, step: Step, **more: Any) -> None:
        """Settle a step that the target wrote, proposals included; `more` are fields of its `TraceStep`."""
        self.verifier_tokens += step.offered - more.pop("read_before", 0)
        more.setdefault("rejected_tokens", 0)
        more["rejected_tokens"] += step.offered - step.kept
        settled = TraceStep(
            "target",
            step.text,
            len(step.tokens),
            truncated=step.stop == "length",
            passes=step.passes,
            exact_offered=step.offered,
            exact_accepted=step.kept,
            **more,
        )
        self.add(settled, step.tokens, step.eos)

    def add(self, step: TraceStep, tokens: Sequence[int], eos: bool) -> None:
        """Settle a step: its `tokens` (the target's ids, EOS included) join the answer, cut at the budget."""
        kept = list(tokens[: self.left])
        cut = len(tokens) - len(kept)
        if cut:
            lost = step.rejected_tokens + (cut if step.author == "draft" else 0)
            step = replace(step, text=self.target.decode(kept), truncated=True, rejected_tokens=lost)
        self.ended = eos and not cut
        self.tokens += kept
        step = replace(step, n_tokens=len(kept), seconds=time.perf_counter() - self._since)
        self.trace.append(step)
        if self.on_step:
            self.on_step(step)
        self._since = time.perf_counter()

    def answer(self) -> Answer:
        by_draft = sum(s.n_tokens for s in self.trace if s.author == "draft")
        taken = [s for s in self.trace if s.accepted]
        return Answer(
            text=self.target.decode(self.tokens[:-1] if self.ended else self.tokens),
            finish_reason="eos" if self.ended else "length",
            trace=tuple(self.trace),
            seconds=sum(s.seconds for s in self.trace),
            output_tokens=len(self.tokens),
            target_tokens=len(self.tokens) - by_draft,
            draft_tokens=by_draft,
            discarded_tokens=self.discarded + sum(s.rejected_tokens for s in self.trace),
            verifier_tokens=self.verifier_tokens,
            offered=sum(s.accepted is not None for s in self.trace),
            accepted=len(taken),
            accepted_tokens=sum(s.n_tokens for s in taken),
            verifications=self.verifications,
            target_passes=sum(s.passes for s in self.trace),
            exact_offered=sum(s.exact_offered for s in self.trace),
            exact_accepted=sum(s.exact_accepted for s in self.trace),
            phases=dict(self.phases),
        )

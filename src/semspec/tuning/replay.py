"""Engines that remember: to a method they are models, and only what nobody has recorded is computed by one.

So a replayed answer is the method's own loop, with its budget, its verdicts and its counts; what is saved is the
models' work. Greedy only: then what a model says follows from the text so far. Every session counts the work that a
real one would have done. Knows the engine interface; knows nothing of probes, rules or searches.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NoReturn

from semspec.engine.base import Engine, Proposal, Propose, Sampling, Segment, Step, StepEnds
from semspec.planning.cost import Passes
from semspec.tuning.tape import Missing, Tape, key

FACTS = ("name", "n_layers", "hidden_size", "vocab_id", "eos_id")


@dataclass
class RecordedEngine:
    """One model of the pair, as far as `tape` knows it.

    role: "draft", of which the states while WRITING are kept, or "target", of which those while READING are.
    facts: the model's own values of `FACTS`. live: gives the model of a role, which pools every layer, or None.
    """

    role: str
    facts: dict[str, Any]
    live: Callable[[str], Engine | None]
    tape: Tape | None = None
    passes: Passes = field(default_factory=Counter)
    layers: Sequence[int] = ()
    context: int | None = None  # what is recorded did fit

    name = property(lambda self: self.facts["name"])
    n_layers = property(lambda self: self.facts["n_layers"])
    hidden_size = property(lambda self: self.facts["hidden_size"])
    vocab_id = property(lambda self: self.facts["vocab_id"])
    eos_id = property(lambda self: self.facts["eos_id"])

    def start(self, tape: Tape) -> None:
        """A new answer, to the question of `tape`."""
        self.tape, self.passes, self.layers = tape, Counter(), ()

    def model(self) -> Engine:
        """The model itself; `Missing` when it can't be asked."""
        found = self.live(self.role)
        if found is None:
            raise Missing(self.role)
        return found

    def record(self) -> Tape:
        assert self.tape is not None, "start an answer first"
        return self.tape

    def _value(self, kind: str, *parts: Any) -> Any:
        name = key(self.role, kind, *parts)
        return self.record().value(name, lambda: getattr(self.model(), kind)(*parts))

    def encode(self, text: str) -> list[int]:
        return list(self._value("encode", text))

    def decode(self, tokens: Sequence[int]) -> str:
        return str(self._value("decode", list(tokens)))

    def chat(self, question: str, system: str) -> list[int]:
        return list(self._value("chat", question, system))

    def observe(self, layers: Sequence[int] | None) -> None:
        self.layers = list(range(self.n_layers)) if layers is None else list(layers)

    def session(self, prompt: Sequence[int]) -> RecordedSession:
        return RecordedSession(self, prompt)

    def turn(self, text: str, begun: str = "") -> NoReturn:
        raise ValueError("a recorded model has one turn")

    def sample_many(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise ValueError("a recorded model is greedy")

    def read_many(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise ValueError("a recorded model has one text")


class RecordedSession:
    """One growing text; see `engine.base.Session`. A real session follows only where the tape has a gap."""

    def __init__(self, engine: RecordedEngine, prompt: Sequence[int]) -> None:
        self.engine = engine
        self.tokens = list(prompt)
        self._prompt = list(prompt)
        self._live: Any = None
        self._count_reading(len(prompt))

    def _count_reading(self, n_tokens: int) -> None:
        self.engine.passes[n_tokens] += 1

    def _caught_up(self) -> Any:
        """A real session that holds exactly our tokens."""
        if self._live is None:
            self._live = self.engine.model().session(self._prompt)
        theirs = self._live.tokens
        same = next((i for i, (a, b) in enumerate(zip(theirs, self.tokens, strict=False)) if a != b), None)
        same = min(len(theirs), len(self.tokens)) if same is None else same
        if len(theirs) > same:
            self._live.rollback(len(theirs) - same)
        if self.tokens[same:]:
            self._live.follow([Segment("", False, self.tokens[same:])])
        return self._live

    def _read_live(self, segment: Segment) -> Step:
        step: Step = self._caught_up().read([segment])[0]
        return step

    def _seen(self, step: Step, seen: bool) -> Step:
        pooled = step.pooled[list(self.engine.layers)] if seen else step.pooled
        return replace(step, pooled=pooled)

    def generate(
        self, step_ends: StepEnds, sampling: Sampling, max_tokens: int, propose: Propose | None = None
    ) -> Step:
        if propose is not None or sampling.temperature:
            raise ValueError("a recorded model is greedy and takes no proposals")
        seen = self.engine.role == "draft"
        name = key(self.engine.role, "write", self.tokens, max_tokens)
        step = self.engine.record().step(
            name, lambda: self._caught_up().generate(step_ends, sampling, max_tokens), seen
        )
        self.tokens = self.tokens + step.tokens
        self.engine.passes[1] += len(step.tokens)
        return replace(self._seen(step, seen), passes=len(step.tokens))

    def read(self, segments: Sequence[Segment]) -> list[Step]:
        """Each segment is kept by itself: what follows it in the same pass changes nothing in it."""
        steps = []
        self._count_reading(sum(len(s.tokens) for s in segments))
        for segment in segments:
            if not segment.tokens:
                raise ValueError("a recorded model reads tokens")
            name = key(self.engine.role, "read", self.tokens, segment.tokens)
            step = self.engine.record().step(name, partial(self._read_live, segment), seen=True)
            steps.append(self._seen(step, True))
            self.tokens = self.tokens + list(segment.tokens)
        return steps

    def follow(self, segments: Sequence[Segment]) -> None:
        self._count_reading(sum(len(s.tokens) for s in segments))
        self.tokens = self.tokens + [t for s in segments for t in s.tokens]

    def rollback(self, n_tokens: int) -> None:
        if n_tokens:
            if not 0 < n_tokens <= len(self.tokens) - len(self._prompt):
                raise ValueError(f"can't roll back {n_tokens} tokens")
            self.tokens = self.tokens[:-n_tokens]

    def rewrite(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise ValueError("a recorded model takes no proposals")

    def draw(self, n_tokens: int, sampling: Sampling) -> Proposal:
        raise ValueError("a recorded model is greedy")

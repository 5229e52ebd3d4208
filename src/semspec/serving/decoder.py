"""One request, decoded: a method set up as the request asks, its steps and tokens passed on as they come.

The decode runs in one thread; it can be halted before any token that either model writes, and only there. The models'
sessions belong to the answer, so a halted one leaves nothing behind. Knows nothing of HTTP, queues or JSON.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, cast

from semspec import decoding
from semspec.decoding import Setup, TraceStep
from semspec.engine.base import Engine, Propose, Sampling, Session, Step, StepEnds
from semspec.errors import UserError
from semspec.schema import Settings

Author = Literal["draft", "target"]
Finish = Literal["stop", "length"]
Reason = Literal["gone", "timeout", "shutdown"]
STRANGE = "\ufffd"  # stands for half a character until its other bytes are written


@dataclass(frozen=True)
class Ask:
    """What one request asks for; None where the served settings decide.

    history: earlier turns, (question, answer). raw: `question` is the whole prompt. decide: changes to the section
    `decide`.
    """

    question: str
    history: tuple[tuple[str, str], ...] = ()
    system: str | None = None
    raw: bool = False
    method: str | None = None
    gamma: int | None = None
    decide: Mapping[str, Any] = field(default_factory=dict)
    max_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    seed: int = 0
    stop: tuple[str, ...] = ()


@dataclass(frozen=True)
class Begun:
    """The prompt is accepted and the decode begins."""

    method: str
    prompt_tokens: int


@dataclass(frozen=True)
class Piece:
    """New text of the answer, which may be empty; `step`, once its step (number `index`) is settled."""

    text: str
    index: int
    author: Author
    step: TraceStep | None = None


@dataclass(frozen=True)
class Done:
    """The whole answer; `seconds` from the prompt to its end."""

    method: str
    prompt_tokens: int
    text: str
    finish: Finish
    steps: tuple[TraceStep, ...]
    seconds: float
    discarded_tokens: int = 0

    def tokens(self, author: Author) -> int:
        return sum(s.n_tokens for s in self.steps if s.author == author)


class Halted(Exception):
    """The decode was stopped from outside, for one of `Reason`."""


class _Stopped(Exception):
    """A stop sequence has been written."""


class Decoder:
    """Both models and their probes; `run` answers one request at a time."""

    def __init__(self, settings: Settings, draft: Engine, target: Engine, probes: Mapping[str, Any], method: str):
        self.settings, self.draft, self.target, self.probes, self.method = settings, draft, target, probes, method
        self.methods = [name for name in decoding.METHODS if self._possible(name)]
        if method not in self.methods:
            self._build(method, settings, draft, target)  # says why not

    def _possible(self, name: str) -> bool:
        try:
            self._build(name, self.settings, self.draft, self.target)
        except UserError:
            return False
        return True

    def _build(self, name: str, settings: Settings, draft: Engine, target: Engine) -> decoding.Method:
        return decoding.build(name, settings, draft, target, self.probes)

    def run(self, ask: Ask, halt: Callable[[], Reason | None], emit: Callable[[Begun | Piece], None]) -> Done:
        """Decode; `emit` sees the answer grow. `UserError` for what cannot be asked, `Halted` once `halt` says so."""
        started = time.perf_counter()
        watch = _Watch(ask.stop, halt, emit)
        method = self._prepare(ask, watch)
        n_prompt = len(method.setup.prompt(self.target, ask.question))
        most = self.settings.serve.max_prompt_tokens
        if not 0 < n_prompt <= most:
            raise UserError(f"the prompt has {n_prompt} tokens; it may have 1 to {most}")
        emit(Begun(method.name, n_prompt))
        finish: Finish = "stop"
        try:
            answer = method.answer(ask.question, ask.seed, watch.step)
            finish = "stop" if answer.finish_reason == "eos" else "length"
            discarded = answer.discarded_tokens
        except _Stopped:
            discarded = sum(s.rejected_tokens for s in watch.steps)
        watch.finish()
        seconds = time.perf_counter() - started
        return Done(method.name, n_prompt, watch.text[: watch.shown], finish, tuple(watch.steps), seconds, discarded)

    def _prepare(self, ask: Ask, watch: _Watch) -> decoding.Method:
        """The method as the request wants it, over engines that are watched."""
        decide, bench = self.settings.decide, self.settings.bench
        changed = {
            "decide": decide.model_copy(update=dict(ask.decide)),
            "bench": bench.model_copy(update={"gamma": ask.gamma or bench.gamma}),
        }
        engines = watched(self.draft, "draft", watch), watched(self.target, "target", watch)
        method = self._build(ask.method or self.method, self.settings.model_copy(update=changed), *engines)
        method.setup = self._setup(ask, method.setup)
        return method

    def _setup(self, ask: Ask, setup: Setup) -> Setup:
        longest = self.settings.serve.max_tokens
        if ask.max_tokens is not None and ask.max_tokens > longest:
            raise UserError(f"max_tokens is {ask.max_tokens}; this server writes at most {longest}")
        setup = replace(
            setup,
            system=setup.system if ask.system is None else ask.system,
            max_tokens=1,
            temperature=setup.temperature if ask.temperature is None else ask.temperature,
            top_p=setup.top_p if ask.top_p is None else ask.top_p,
            history=ask.history,
            raw=ask.raw,
        )
        pair = self.draft, self.target
        room = (e.context - len(setup.prompt(e, ask.question)) for e in pair if e.context is not None)
        return replace(setup, max_tokens=min([ask.max_tokens or longest, *room]))


class _Watch:
    """The answer as it grows: what may be shown of it, and whether to go on.

    text: of all settled steps; shown: characters of it (and of the step in the making) that were passed on. Text is
    held back where a stop sequence may begin, and cut in front of one.
    """

    def __init__(
        self, stops: Sequence[str], halt: Callable[[], Reason | None], emit: Callable[[Begun | Piece], None]
    ) -> None:
        self.stops, self.halt, self.emit = stops, halt, emit
        self.text, self.shown = "", 0
        self.steps: list[TraceStep] = []

    def token(self, author: Author, written: str) -> bool:
        """A model goes on after `written`; whether its step ends here because of a stop sequence.

        What the target writes stays, so it is shown at once; a drafted step may yet be rejected.
        """
        if reason := self.halt():
            raise Halted(reason)
        text = self.text + written
        if author == "target" and (new := self._show(text.rstrip(STRANGE))):
            self.emit(Piece(new, len(self.steps), author))
        return self._stop(text) is not None

    def step(self, step: TraceStep) -> None:
        """A step is settled: the method's `on_step`."""
        start, index = len(self.text), len(self.steps)
        self.text += step.text
        end = self._stop(self.text)
        if end is not None:
            step = replace(step, text=self.text[start:end])
        self.steps.append(step)
        self.emit(Piece(self._show(self.text), index, step.author, step))
        if end is not None:
            raise _Stopped
        if reason := self.halt():
            raise Halted(reason)

    def finish(self) -> None:
        """Show what was held back for a stop sequence that did not come."""
        if self.steps and (rest := self._show(self.text, last=True)):
            self.emit(Piece(rest, len(self.steps) - 1, self.steps[-1].author))

    def _stop(self, text: str) -> int | None:
        """Where the first stop sequence begins."""
        return min((at for s in self.stops if (at := text.find(s)) >= 0), default=None)

    def _show(self, text: str, last: bool = False) -> str:
        end = self._stop(text)
        if end is None:
            end = len(text)
            if not last:
                end -= max((k for s in self.stops for k in range(1, len(s)) if text.endswith(s[:k])), default=0)
        new = text[self.shown : end]
        self.shown = max(self.shown, end)
        return new


class _WatchedSession:
    """A session that asks `watch` before each token it writes; all else is the session's own."""

    def __init__(self, session: Session, author: Author, watch: _Watch) -> None:
        self._session, self._author, self._watch = session, author, watch

    def __getattr__(self, name: str) -> Any:
        return getattr(self._session, name)

    def _ends(self, step_ends: StepEnds) -> StepEnds:
        def ends(text: str, upcoming: str) -> bool:
            return self._watch.token(self._author, text) or step_ends(text, upcoming)

        return ends

    def generate(
        self, step_ends: StepEnds, sampling: Sampling, max_tokens: int, propose: Propose | None = None
    ) -> Step:
        return self._session.generate(self._ends(step_ends), sampling, max_tokens, propose)

    def rewrite(
        self, n_tokens: int, step_ends: StepEnds, sampling: Sampling, max_tokens: int, propose: Propose | None = None
    ) -> Step:
        return self._session.rewrite(n_tokens, self._ends(step_ends), sampling, max_tokens, propose)


class _WatchedEngine:
    """An engine whose sessions are watched; all else is the engine's own."""

    def __init__(self, engine: Engine, author: Author, watch: _Watch) -> None:
        self._engine, self._author, self._watch = engine, author, watch

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    def session(self, prompt: Sequence[int]) -> _WatchedSession:
        return _WatchedSession(self._engine.session(prompt), self._author, self._watch)


def watched(engine: Engine, author: Author, watch: _Watch) -> Engine:
    """`engine`, with `watch` asked before each token."""
    return cast(Engine, _WatchedEngine(engine, author, watch))

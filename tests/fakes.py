"""A scripted language model for tests: tiny, deterministic, and unforgiving about what is in the cache.

`FakeEngine` keeps engine/base.py's protocols. It writes its script's steps one after the other: which
step comes next follows from how many steps the answer holds so far, so it carries on after anything that
another model wrote. Its hidden states are a hash of ALL the tokens in the cache, so a token too many or
too few after a rollback or a read changes them.
"""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from semspec.engine.base import Proposal, Propose, Sampling, Segment, Step, StepEnds
from semspec.engine.statistics import STATISTICS, Tokens

ANSWER = "\x02"  # ends the prompt
TURN = "\x03\x03"  # opens a new turn; may stand behind EOS
BASE = 16  # token ids below are special


def blank_line(text: str, upcoming: str) -> bool:
    """The plainest `StepEnds`: after a blank line."""
    return text.endswith("\n\n") and not upcoming.startswith("\n")


class FakeSession:
    """One growing text. `calls` has an entry for every model pass: ("generate"|"read"|"follow"|"rollback", tokens)."""

    def __init__(self, engine: FakeEngine, prompt: Sequence[int]):
        self.engine = engine
        self.tokens = list(prompt)
        self.n_prompt = len(prompt)
        self.calls: list[tuple[str, int]] = []

    @property
    def answer(self) -> str:
        """The text behind the prompt."""
        return self.engine.decode(self.tokens[self.n_prompt :])

    def _append(self, token: int) -> None:
        answer = [*self.tokens[self.n_prompt :], token]
        if self.engine.eos_id in answer[:-1] and self.engine.encode(TURN)[0] not in answer:
            raise AssertionError(f"{self.engine.name}: a token behind EOS")
        self.tokens.append(token)

    def _step(self, n: int, text: str, stop: str) -> Step:
        states, logprobs = self.engine.states(self.tokens, n)
        return Step(
            tokens=self.tokens[-n:],
            text=text,
            scores=Tokens(logprobs, -logprobs, logprobs, np.zeros(n, dtype=bool)),
            pooled=states.mean(axis=0)[self.engine.layers],
            stop=stop,  # type: ignore[arg-type]
        )

    def rewrite(
        self, n_tokens: int, step_ends: StepEnds, sampling: Sampling, max_tokens: int, propose: Propose | None = None
    ) -> Step:
        if self.calls[-1][0] != "read" or self.calls[-1][1] < n_tokens:
            raise AssertionError(f"{self.engine.name}: asked to rewrite {n_tokens} tokens that were not just read")
        self.rollback(n_tokens)
        return self.generate(step_ends, sampling, max_tokens, propose)

    def generate(
        self, step_ends: StepEnds, sampling: Sampling, max_tokens: int, propose: Propose | None = None
    ) -> Step:
        if max_tokens < 1:
            raise AssertionError(f"asked to write {max_tokens} tokens")
        if self.engine.before_generate:
            self.engine.before_generate(self)
        rng = np.random.default_rng(sampling.seed) if sampling.temperature else None
        text, n, stop = "", 0, "length"
        while n < max_tokens:
            piece = self.engine.next_piece(self.answer, rng)
            if text and step_ends(text, piece or ""):
                stop = "step"
                break
            n += 1
            if piece is None:
                self._append(self.engine.eos_id)
                stop = "eos"
                break
            self._append(self.engine.encode(piece)[0])
            text += piece
        self.calls.append(("generate", n))
        return self._step(n, text, stop)

    def draw(self, n_tokens: int, sampling: Sampling) -> Proposal:
        """The engine's `marks` in turn, each as sure as can be."""
        if n_tokens != 1:
            raise AssertionError("a scripted session draws one token at a time")
        token = self.engine.encode(str(self.engine.marks.pop(0) if self.engine.marks else 9))[0]
        return Proposal([token], np.array([[token]]), np.array([[1.0]]))

    def read(self, segments: Sequence[Segment]) -> list[Step]:
        steps = self._take(segments)
        self.calls.append(("read", sum(len(s.tokens) for s in steps)))
        return steps

    def follow(self, segments: Sequence[Segment]) -> None:
        self.calls.append(("follow", sum(len(s.tokens) for s in self._take(segments))))

    def _take(self, segments: Sequence[Segment]) -> list[Step]:
        steps = []
        for s in segments:
            tokens = s.tokens or self.engine.encode(s.text) + [self.engine.eos_id] * s.eos
            same = not s.text or self.engine.decode(tokens) == s.text
            if not tokens or not same or (self.engine.eos_id in tokens) != s.eos:
                raise AssertionError(f"{self.engine.name} cannot read {s!r}")
            for t in tokens:
                self._append(t)
            steps.append(self._step(len(tokens), s.text, "read"))
        return steps

    def rollback(self, n_tokens: int) -> None:
        if not 0 < n_tokens <= len(self.tokens) - self.n_prompt:
            raise AssertionError(f"{self.engine.name}: rollback by {n_tokens}")
        self.calls.append(("rollback", n_tokens))
        del self.tokens[-n_tokens:]


@dataclass
class FakeEngine:
    """A model that writes `script`: one entry per step, a tuple where sampling may choose.

    script: its last step may lack the blank line, EOS then belongs to that step; else EOS is a step of
    its own (unlike a real engine's, which joins it to the step before).
    chars: characters per token, 1 or 2; engines that differ here differ in vocabulary and EOS id.
    """

    name: str
    script: Sequence[str | tuple[str, ...]]
    chars: int = 1
    n_layers: int = 3
    hidden_size: int = 4
    context: int | None = None
    before_generate: Callable[[FakeSession], None] | None = None
    sessions: list[FakeSession] = field(default_factory=list)
    passes: Counter[int] = field(default_factory=Counter)
    layers: list[int] = field(default_factory=lambda: [0, 1, 2])
    marks: list[int] = field(default_factory=list)

    @property
    def vocab_id(self) -> str:
        return f"fake-{self.chars}"

    @property
    def eos_id(self) -> int:
        return self.chars

    def encode(self, text: str) -> list[int]:
        pieces = [text[i : i + self.chars] for i in range(0, len(text), self.chars)]
        return [BASE + int.from_bytes(p.encode("latin-1"), "little") for p in pieces]

    def decode(self, tokens: Sequence[int]) -> str:
        ids = [t - BASE for t in tokens if t >= BASE]
        return b"".join(i.to_bytes((i.bit_length() + 7) // 8, "little") for i in ids).decode("latin-1")

    def chat(self, question: str, system: str) -> list[int]:
        return self.encode(f"{system}\n{question}") + self.encode(ANSWER)

    def turn(self, text: str, begun: str = "") -> list[int]:
        return self.encode(f"{TURN}{text}{ANSWER}{begun}")

    def states(self, tokens: Sequence[int], n: int) -> tuple[np.ndarray, np.ndarray]:
        """For the last `n` of `tokens`: states `[n, layers, hidden]` in [0, 1), log-probabilities `[n]`."""
        crc, crcs = zlib.crc32(self.name.encode()), []
        for t in tokens:
            crc = zlib.crc32(t.to_bytes(4, "little"), crc)
            crcs.append(crc)
        odd = 2 * np.arange(self.n_layers * self.hidden_size + 1, dtype=np.uint64) + 2654435761
        values = (np.array(crcs[-n:], dtype=np.uint64)[:, None] * odd % 2**32 / 2**32).astype(np.float32)
        return values[:, 1:].reshape(n, self.n_layers, self.hidden_size), -0.1 - values[:, 0]

    def next_piece(self, answer: str, rng: np.random.Generator | None) -> str | None:
        """The text of the next token after `answer`, None for EOS."""
        *done, partial = answer.split("\n\n")
        if len(done) >= len(self.script):
            return None
        choices = self.script[len(done)]
        choices = (choices,) if isinstance(choices, str) else choices
        if partial:
            choices = tuple(c for c in choices if c.startswith(partial)) or choices
        step = choices[int(rng.integers(len(choices))) if rng and not partial else 0]
        piece = step[len(partial) : len(partial) + self.chars]
        if not piece and step.endswith("\n\n"):  # behind a longer text by another model
            piece = "\n\n"[: self.chars]
        return piece or None

    def observe(self, layers: Sequence[int] | None) -> None:
        self.layers = list(range(self.n_layers)) if layers is None else list(layers)

    def session(self, prompt: Sequence[int]) -> FakeSession:
        self.sessions.append(FakeSession(self, prompt))
        return self.sessions[-1]

    def sample_many(
        self,
        prompts: Sequence[Sequence[int]],
        n: int,
        step_ends: StepEnds,
        sampling: Sampling,
        max_tokens: int,
        seeds: Sequence[int],
    ) -> list[list[Step]]:
        out = []
        for prompt, seed in zip(prompts, seeds, strict=True):
            draws = [Sampling(sampling.temperature, seed=1000 * seed + i) for i in range(n)]
            out.append([FakeSession(self, prompt).generate(step_ends, d, max_tokens) for d in draws])
        return out

    def read_many(self, prompts: Sequence[Sequence[int]], segments: Sequence[Sequence[Segment]]) -> list[list[Step]]:
        return [
            [FakeSession(self, prompt).read([s])[0] for s in alternatives]
            for prompt, alternatives in zip(prompts, segments, strict=True)
        ]


class ScriptedProbe:
    """A predictor that gives `values` in turn, then the last one for ever; keeps what it was shown."""

    def __init__(self, *values: float, layers: Sequence[int] = (0, 1, 2)):
        self.values = list(values)
        self.layers = layers
        self.seen: list[tuple[np.ndarray, np.ndarray]] = []
        self.config: dict[str, object] = {}

    def predict(self, hidden: np.ndarray, logprob: np.ndarray) -> np.ndarray:
        if hidden.shape[:2] != (len(logprob), len(self.layers)) or logprob.shape[1] != len(STATISTICS):
            raise AssertionError(f"shapes {hidden.shape}, {logprob.shape}")
        self.seen.extend(zip(hidden, logprob, strict=True))
        return np.array([self.values.pop(0) if len(self.values) > 1 else self.values[0] for _ in hidden])

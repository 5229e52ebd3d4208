"""What an answer costs, counted: tokens that each model writes and reads, times seconds measured once.

A pure model of decoding time, so that equal work always costs the same and a busy machine decides nothing. Knows
nothing of methods or of who did the work.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np

from semspec import files, provenance

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from semspec.engine.base import Engine

ROLES = ("draft", "target")
WRITTEN = 24  # tokens of each timed piece of writing
READ = (4, 32)  # tokens of the two timed readings
QUESTIONS = 6  # that everything is timed on


@dataclass
class Work:
    """What one model did: tokens written (a pass each), tokens read, and passes that read them, prompts included."""

    written: int = 0
    read: int = 0
    passes: int = 0


@dataclass(frozen=True)
class Prices:
    """Seconds of one model: for a token that it writes, for a token that it reads, for a pass that reads."""

    write: float
    read: float
    start: float


@dataclass(frozen=True)
class Cost:
    """Seconds of all work. judge: of one judged step."""

    draft: Prices
    target: Prices
    judge: float = 0.0

    def seconds(self, work: Mapping[str, Work], judged: int = 0) -> float:
        """{role: its work} and how many steps were judged -> seconds of an answer."""
        total = self.judge * judged
        for role, done in work.items():
            price: Prices = getattr(self, role)
            total += price.write * done.written + price.read * done.read + price.start * done.passes
        return total

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Cost:
        return cls(Prices(**data["draft"]), Prices(**data["target"]), data["judge"])


def _timed(call: Callable[[], Any]) -> float:
    started = perf_counter()
    call()
    return perf_counter() - started


def measure(engine: Engine, prompts: Sequence[Sequence[int]]) -> Prices:
    """Prices of one model on this machine: medians over `prompts`, the first of them a warm-up."""
    from semspec.engine.base import Sampling, Segment, never

    writes, reads = [], []
    for prompt in [prompts[0], *prompts]:
        session = engine.session(prompt)
        step = session.generate(never, Sampling(), WRITTEN)
        session.rollback(len(step.tokens))
        writes.append(_timed(partial(session.generate, never, Sampling(), WRITTEN)) / len(step.tokens))
        words = list(step.tokens[: -1 if step.eos else None]) or list(prompt)[-1:]
        for n in READ:
            reads.append((n, _timed(partial(session.read, [Segment("", False, (words * n)[:n])]))))
            session.rollback(n)
    few, many = (float(np.median([s for n, s in reads[len(READ) :] if n == size])) for size in READ)
    read = max(0.0, (many - few) / (READ[1] - READ[0]))
    return Prices(float(np.median(writes[1:])), read, max(0.0, few - READ[0] * read))


def measured_once(root: Path, described: Mapping[str, Any], time_it: Callable[[], Cost]) -> Cost:
    """The cost on this machine of what `described` (models, number format, threads) says: measured, or read again."""
    found = {**described, "machine": provenance.machine()}
    name = files.digest(json.dumps(found, sort_keys=True))
    path = root / "data/tune" / f"cost-{name}.json"
    if not path.exists():
        files.write_json(path, time_it().to_json() | {"of": found})
    return Cost.from_json(files.read_json(path))

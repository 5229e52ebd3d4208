"""What an answer costs, counted: passes of each model by their width, times seconds measured once.

A pure model of decoding time, so that equal work always costs the same and a busy machine decides nothing. Knows
nothing of methods or of who did the work.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np

from semspec import files, provenance
from semspec.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from semspec.engine.base import Engine, Wanted

ROLES = ("draft", "target")
WRITTEN = 24  # tokens of each timed piece of writing
WIDTHS = (2, 4, 8, 12, 16, 32, 64, 128)  # tokens of the timed readings
QUESTIONS = 6  # that everything is timed on
BEHIND = 512  # tokens between the prompt and a timed pass at most: each of them takes time to read, too
Passes = Counter[int]  # {tokens of a pass: how many such passes}; width 1 is a token written


@dataclass(frozen=True)
class Curve:
    """Seconds of one pass of one model by its width, `widths` rising from 1."""

    widths: tuple[int, ...]
    seconds: tuple[float, ...]

    def at(self, width: float) -> float:
        """Between the measured widths, and beyond the last one, on a straight line."""
        if width <= self.widths[-1] or len(self.widths) == 1:
            return float(np.interp(width, self.widths, self.seconds))
        (a, b), (s, t) = self.widths[-2:], self.seconds[-2:]
        return t + (width - b) * (t - s) / (b - a)

    @property
    def write(self) -> float:
        """Seconds of a token that is written."""
        return self.seconds[0]

    def writing_as(self, other: Curve) -> Curve:
        """This one's readings (measured from 2 tokens on), and tokens written as the other one's."""
        return Curve(self.widths, (other.write, *self.seconds[1:]))

    def to_json(self) -> dict[str, float]:
        return {str(w): s for w, s in zip(self.widths, self.seconds, strict=True)}

    @classmethod
    def from_json(cls, data: Mapping[str, float]) -> Curve:
        known = sorted((int(w), float(s)) for w, s in data.items())
        return cls(tuple(w for w, _ in known), tuple(s for _, s in known))


@dataclass(frozen=True)
class Prices:
    """One model's curves, by what is wanted of its passes: see `engine.base.Wanted`."""

    judged: Curve
    verified: Curve
    followed: Curve

    def of(self, role: str, wanted: Wanted) -> Curve:
        """What the passes of a role cost in a method that wants so much of what the target reads.

        The draft writes what is judged, and only follows what the target wrote; what the target itself writes no
        probe looks at.
        """
        if role == "draft":
            return self.followed.writing_as(self.judged if wanted == "judged" else self.followed)
        reading: Curve = getattr(self, wanted)
        return reading.writing_as(self.followed)

    def to_json(self) -> dict[str, dict[str, float]]:
        return {f.name: getattr(self, f.name).to_json() for f in fields(self)}

    @classmethod
    def from_json(cls, data: Mapping[str, Mapping[str, float]]) -> Prices:
        return cls(**{f.name: Curve.from_json(data[f.name]) for f in fields(cls)})


@dataclass(frozen=True)
class Cost:
    """Seconds of all work. judge: of one judged step."""

    draft: Prices
    target: Prices
    judge: float = 0.0

    def seconds(self, work: Mapping[str, Mapping[int, int]], wanted: Wanted, judged: int = 0) -> float:
        """{role: its passes}, what a method wanted of them and how many steps it judged -> seconds."""
        total = self.judge * judged
        for role, passes in work.items():
            prices: Prices = getattr(self, role)
            curve = prices.of(role, wanted)
            total += sum(count * curve.at(width) for width, count in passes.items())
        return total

    def to_json(self) -> dict[str, Any]:
        return {"draft": self.draft.to_json(), "target": self.target.to_json(), "judge": self.judge}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Cost:
        return cls(Prices.from_json(data["draft"]), Prices.from_json(data["target"]), float(data["judge"]))

    @classmethod
    def read(cls, path: Path) -> Cost:
        """`UserError` where the file holds none."""
        try:
            return cls.from_json(files.read_json(path))
        except (KeyError, TypeError, ValueError, AttributeError):
            raise UserError(f"{path} holds no cost of passes; delete it and run this again") from None


def _timed(call: Callable[[], Any]) -> tuple[float, Any]:
    started = perf_counter()
    found = call()
    return perf_counter() - started, found


def measure(
    engine: Engine,
    prompts: Sequence[Sequence[int]],
    tick: Callable[[], None] = lambda: None,
    layers: Sequence[int] | None = None,
    answer: int = 0,
) -> Prices:
    """The curves of one model on this machine, medians over `prompts`, the first of them a warm-up.

    What is judged has the states of `layers` (`None` = all) pooled. The three kinds of passes take turns, in the middle
    of an answer of so many tokens: a pass takes longer the more it looks back on.
    """
    from semspec.engine.base import Sampling, Segment, never

    found: list[dict[int, list[float]]] = [{w: [] for w in (1, *WIDTHS)} for _ in fields(Prices)]
    for i, prompt in enumerate([prompts[0], *prompts]):
        session, half = engine.session(prompt), min(answer // 2, BEHIND)
        if half:
            session.follow([Segment("", False, (list(prompt) * half)[:half])])
        ways = list(zip((layers, [], []), (session.read, session.read, session.follow), found, strict=True))
        words: list[int] = []
        for seen, _, times in ways:
            engine.observe(seen)
            seconds, step = _timed(partial(session.generate, never, Sampling(), WRITTEN))
            times[1] += [seconds / len(step.tokens)] * (i > 0)
            session.rollback(len(step.tokens))
            words = list(step.tokens[: -1 if step.eos else None]) or list(prompt)[-1:]
        for n in WIDTHS:
            for seen, take, times in ways:
                engine.observe(seen)
                seconds, _ = _timed(partial(take, [Segment("", False, (words * n)[:n])]))
                times[n] += [seconds] * (i > 0)
                session.rollback(n)
        tick()
    # a wider pass never costs less, but for noise
    rising = [np.maximum.accumulate([float(np.median(s)) for s in times.values()]) for times in found]
    return Prices(*(Curve((1, *WIDTHS), tuple(seconds.tolist())) for seconds in rising))


def measured_once(root: Path, described: Mapping[str, Any], time_it: Callable[[], Cost]) -> Cost:
    """The cost on this machine of what `described` (the models and how they are run) says: measured, or read again."""
    found = {**described, "machine": provenance.machine(), "widths": WIDTHS, "kinds": [f.name for f in fields(Prices)]}
    name = files.digest(json.dumps(found, sort_keys=True))
    path = root / "data/tune" / f"cost-{name}.json"
    if not path.exists():
        files.write_json(path, time_it().to_json() | {"of": found})
    return Cost.read(path)

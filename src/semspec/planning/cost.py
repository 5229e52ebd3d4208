"""What an answer costs, counted: passes of each model by their width, times seconds measured once.

A pure model of decoding time, so that equal work always costs the same and a busy machine decides nothing. Knows
nothing of methods or of who did the work.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
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
WIDTHS = (2, 4, 8, 16, 32, 64, 128)  # tokens of the timed readings
QUESTIONS = 6  # that everything is timed on
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

    def to_json(self) -> dict[str, float]:
        return {str(w): s for w, s in zip(self.widths, self.seconds, strict=True)}

    @classmethod
    def from_json(cls, data: Mapping[str, float]) -> Curve:
        known = sorted((int(w), float(s)) for w, s in data.items())
        return cls(tuple(w for w, _ in known), tuple(s for _, s in known))


@dataclass(frozen=True)
class Cost:
    """Seconds of all work. judge: of one judged step; plain: {role: its curve of text that is only followed}."""

    draft: Curve
    target: Curve
    judge: float = 0.0
    plain: Mapping[str, Curve] = field(default_factory=dict)

    def seconds(self, work: Mapping[str, Mapping[int, int]], judged: int = 0, unseen: bool = False) -> float:
        """{role: its passes} and how many steps were judged -> seconds. unseen: nothing is pooled; else it is while the
        draft writes (passes of one token) and the target reads."""
        total = self.judge * judged
        for role, passes in work.items():
            own: Curve = getattr(self, role)
            plain = self.plain.get(role, own)
            for width, count in passes.items():
                pools = not unseen and (width == 1) == (role == "draft")
                total += count * (own if pools else plain).at(width)
        return total

    def to_json(self) -> dict[str, Any]:
        found = {"draft": self.draft.to_json(), "target": self.target.to_json(), "judge": self.judge}
        return found | {"plain": {role: curve.to_json() for role, curve in self.plain.items()}}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Cost:
        plain = {role: Curve.from_json(curve) for role, curve in data.get("plain", {}).items()}
        return cls(Curve.from_json(data["draft"]), Curve.from_json(data["target"]), data["judge"], plain)


def _timed(call: Callable[[], Any]) -> tuple[float, Any]:
    started = perf_counter()
    found = call()
    return perf_counter() - started, found


def measure(
    engine: Engine,
    prompts: Sequence[Sequence[int]],
    tick: Callable[[], None] = lambda: None,
    layers: Sequence[int] | None = None,
) -> tuple[Curve, Curve]:
    """The two curves of one model on this machine, medians over `prompts`, the first of them a warm-up.

    Of text that is judged: scored, and the states of `layers` (`None` = all) are pooled. Of text that is only followed.
    The two take turns.
    """
    from semspec.engine.base import Sampling, Segment, never

    found: list[dict[int, list[float]]] = [{w: [] for w in (1, *WIDTHS)} for _ in range(2)]
    for i, prompt in enumerate([prompts[0], *prompts]):
        session = engine.session(prompt)
        ways = list(zip((layers, []), (session.read, session.follow), found, strict=True))
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
    judged, plain = (Curve((1, *WIDTHS), tuple(seconds.tolist())) for seconds in rising)
    return judged, plain


def measured_once(root: Path, described: Mapping[str, Any], time_it: Callable[[], Cost]) -> Cost:
    """The cost on this machine of what `described` (the models and how they are run) says: measured, or read again."""
    found = {**described, "machine": provenance.machine(), "widths": WIDTHS, "plain": "followed"}
    name = files.digest(json.dumps(found, sort_keys=True))
    path = root / "data/tune" / f"cost-{name}.json"
    if not path.exists():
        files.write_json(path, time_it().to_json() | {"of": found})
    return Cost.from_json(files.read_json(path))

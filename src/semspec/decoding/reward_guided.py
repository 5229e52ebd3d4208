"""Reward-guided speculative decoding (Liao et al., 2025): a draft step stays when a reward model thinks well of it.

Any `Scorer` will do; without one the reward is the target's own mean mark (the prompted scorer of SpecReason). The loop
is SpecReason's: what differs is who judges, and the threshold. Where a scorer judges, the target reads the steps that
stayed only when it writes itself. Knows nothing of how a scorer comes to its reward.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from pkgutil import resolve_name
from typing import Protocol

from semspec.decoding.base import Setup, Transcript
from semspec.decoding.specreason import PromptedScorer, SpecReason
from semspec.engine.base import Engine, Segment, Session
from semspec.errors import UserError


class Scorer(Protocol):
    """A reward model."""

    def __call__(self, question: str, steps: Sequence[str], step: str) -> float:
        """The reward, in [0, 1], of `step` behind `steps` of an answer to `question`; all as text."""


class RewardGuided(SpecReason):
    """Steps whose reward reaches `threshold` (the paper's 0.7) stay. scorer: None = the target's mean mark."""

    name = "reward_guided"

    def __init__(
        self, setup: Setup, draft: Engine, target: Engine, scorer: Scorer | None = None, threshold: float = 0.7
    ):
        super().__init__(setup, draft, target, PromptedScorer(target, "average"), threshold)
        self.reward = scorer
        self.reads = scorer is None

    def _mark(self, reader: Session, question: str, drafted: Segment, out: Transcript) -> float:
        if self.reward is None:
            return super()._mark(reader, question, drafted, out)
        with out.phase("score"):
            reward = float(self.reward(question, [step.text for step in out.trace], drafted.text))
        if not 0 <= reward <= 1:
            raise UserError(f"the scorer of reward_guided gave {reward:g}; let it return a number from 0 to 1")
        return reward


def find(place: str) -> Scorer:
    """The scorer at `module:callable`; a module may lie in the current folder. `UserError` where there is none."""
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.append(here)
    try:
        found: Scorer = resolve_name(place)
    except Exception as e:  # whatever importing the user's module comes to
        said = f"{type(e).__name__}: {e}".splitlines()[0]
        raise UserError(f"baselines.scorer is '{place}' ({said}); write it as module:callable") from None
    if not callable(found):
        raise UserError(f"baselines.scorer is '{place}', which can't be called; name a function")
    return found

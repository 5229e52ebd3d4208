"""Reward-guided speculative decoding (Liao et al., 2025): a draft step stays when a reward model thinks well of it.

Any scorer that maps the chain so far to [0, 1] will do; without a reward model it is the target's own mean mark (the
prompted scorer of SpecReason). The loop is the same: what differs is who judges, and the threshold.
"""

from __future__ import annotations

from semspec.decoding.base import Setup
from semspec.decoding.specreason import PromptedScorer, Scorer, SpecReason
from semspec.engine.base import Engine


class RewardGuided(SpecReason):
    """Steps whose reward reaches `threshold` (the paper's 0.7) stay."""

    name = "reward_guided"

    def __init__(
        self, setup: Setup, draft: Engine, target: Engine, scorer: Scorer | None = None, threshold: float = 0.7
    ):
        super().__init__(setup, draft, target, scorer or PromptedScorer(target, "average"), threshold)

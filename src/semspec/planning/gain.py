"""How much drafting can gain, from what passes cost: closed forms, no model and no data.

Everything is per token of the target's tokenizer. Steps are taken to be `length` tokens long and to be kept
independently with the same probability; a rejected step is written anew by the target and read by the draft, as
`semantic` does (SemanticSpec, Algorithm 1). Knows curves; knows nothing of engines, files or people.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from scipy.optimize import brentq

from semspec.planning.cost import Curve

GAMMAS = (1, 2, 3, 4)  # steps drafted per verification
LENGTHS = (8, 16, 24, 32, 48, 64, 96)  # tokens of a step
GUESSES = (1, 2, 3, 4, 5, 6, 8, 10)  # tokens drafted per pass of exact speculation


@dataclass(frozen=True)
class Pair:
    """A draft and a target, each on its engine.

    rate: draft tokens per target token for the same text, 1 where they share a vocabulary.
    base: seconds that target-only decoding takes per token, on the fastest engine there is.
    """

    draft: Curve
    target: Curve
    base: float
    rate: float = 1.0

    def _drafting(self, length: float) -> float:
        return self.draft.write * self.rate * length

    def bound(self, length: float) -> float:
        """Speed-up when every step is kept: base / (draft writes + target reads)."""
        return self.base * length / (self._drafting(length) + self.target.at(length))

    def semantic(self, kept: float, length: float, gamma: int = 1) -> float:
        """Speed-up of stepwise speculation where each step is kept with probability `kept`."""
        drafting = gamma * self._drafting(length) + self.target.at(gamma * length)
        rejected = 1.0 - kept**gamma  # that the target has to write a step
        mending = self.target.write * length + self.draft.at(self.rate * length)
        # steps of a round: those kept before the first rejection, and the target's own
        steps = gamma if kept == 1.0 else rejected / (1.0 - kept)
        return steps * length * self.base / (drafting + rejected * mending)

    def exact(self, kept: float, guesses: int) -> float:
        """Speed-up of speculative sampling where each drafted token is kept with probability `kept` (Leviathan et al.
        2023, Theorem 3.8, with measured costs). The draft has to share the vocabulary."""
        tokens = guesses + 1 if kept == 1.0 else (1.0 - kept ** (guesses + 1)) / (1.0 - kept)
        return tokens * self.base / (guesses * self.draft.write + self.target.at(guesses + 1))

    def break_even(self, length: float, gamma: int = 1) -> float | None:
        """The least acceptance of a step at which nothing is lost; None where even 1 is not enough."""
        if self.semantic(1.0, length, gamma) < 1.0:
            return None
        if self.semantic(0.0, length, gamma) >= 1.0:
            return 0.0
        # the speed-up rises with the acceptance
        return float(brentq(lambda kept: self.semantic(kept, length, gamma) - 1.0, 0.0, 1.0, xtol=1e-4))

    def best_gamma(self, kept: float, length: float, gammas: Iterable[int] = GAMMAS) -> tuple[int, float]:
        """(steps drafted per verification, speed-up) that suits this acceptance best."""
        return max(((g, self.semantic(kept, length, g)) for g in gammas), key=lambda found: found[1])

    def best_guesses(self, kept: float) -> tuple[int, float]:
        """(tokens drafted per pass, speed-up) of exact speculation that suits this acceptance best."""
        return max(((n, self.exact(kept, n)) for n in GUESSES), key=lambda found: found[1])

"""Sums of hidden states over the tokens of a step, taken while a model runs; nothing is stored per token."""

from __future__ import annotations

import torch


class Pool:
    """Sums of hidden states `[layers, rows, segments, hidden]`; `weights` `[rows, segments, tokens]` of a pass.

    seconds: what fetching the states and adding them up has taken.
    """

    def __init__(self, layers: int, rows: int, segments: int, hidden: int, device: torch.device) -> None:
        self.sums = torch.zeros(layers, rows, segments, hidden, device=device)
        self.weights: torch.Tensor | None = None  # None: one token a row, which counts fully
        self.seconds = 0.0

    def add(self, slot: int, states: torch.Tensor, start: int = 0) -> None:
        """Count `states` `[rows, tokens, hidden]` of the layer in `slot`; `start`: where in the pass they begin."""
        if self.weights is None:
            self.sums[slot] += states.float()
        else:
            self.sums[slot] += torch.matmul(self.weights[..., start : start + states.shape[1]], states.float())

    def select(self, rows: torch.Tensor) -> None:
        self.sums = self.sums[:, rows]

"""Sums of every layer's output over the tokens that a request asks for, taken while an SGLang model reads them.

Between SGLang's layers the residual has not been added yet, so what a layer returns is not its output. The sum is
complete where the next layer takes it in, and SGLang hands it out there (`capture_output`); behind the last layer it
is what the final norm returns beside its result. Only passes that read are looked at: a token that a model has just
written is read again by the request that asks for its state, so decoding may run in CUDA graphs, ahead of its stop.

One running sum a request, on the device, over however many chunks its text is read in. Knows nothing of HTTP.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

import torch
from torch import nn

from semspec.sglang_server.protocol import Wish, pack, wish_of

KEPT = 4096  # requests whose sums are held: those of aborted ones are never asked for


class Sums:
    """Of one request: fp32 `[segments, layers, hidden]`, and the tokens in each segment."""

    def __init__(self, wish: Wish) -> None:
        self.layers = list(wish.layers)
        self.segments = list(pairwise(wish.bounds))
        self.counts = [0] * len(self.segments)
        self.states: torch.Tensor | None = None

    def add(self, segment: int, n_tokens: int, states: torch.Tensor) -> None:
        """`states` `[all layers, hidden]`: the sum over `n_tokens` more tokens of a segment."""
        if self.states is None:
            self.states = states.new_zeros(len(self.segments), len(self.layers), states.shape[-1])
        self.states[segment] += states[self.layers]
        self.counts[segment] += n_tokens

    def packed(self) -> dict[str, Any] | None:
        """The means, for the answer; None where nothing was pooled."""
        if self.states is None:
            return None
        counts = torch.tensor(self.counts, device=self.states.device).clamp_min(1)
        means = (self.states / counts[:, None, None]).cpu().contiguous()
        return pack(self.counts, means.shape, means.numpy().tobytes())


class Pooling:
    """The running sums of one model's requests. In a pass its `layers` are called in order, then its final `norm`."""

    def __init__(self, layers: Sequence[nn.Module], norm: nn.Module) -> None:
        self._n_layers = len(layers)
        self._requests: dict[str, Sums] = {}
        self._spans: list[tuple[Sums, int, int]] = []  # of this pass: request, segment, tokens
        self._weights: torch.Tensor | None = None  # [spans, tokens] of this pass; None: nothing is pooled
        self._found: list[torch.Tensor] = []  # [spans, hidden] of each layer that has been passed
        for layer in layers[1:]:
            layer.register_forward_pre_hook(self._capture, with_kwargs=True)
        norm.register_forward_hook(self._last)

    def _capture(self, layer: nn.Module, args: Any, kwargs: dict[str, Any]) -> tuple[Any, dict[str, Any]] | None:
        return None if self._weights is None else (args, kwargs | {"capture_output": self._add})

    def _last(self, norm: nn.Module, args: Any, output: Any) -> None:
        if self._weights is not None:  # without a residual of its own, the input is complete
            self._add(output[1] if isinstance(output, tuple) else args[0])

    def _add(self, states: torch.Tensor, **kwargs: Any) -> None:
        """`states` `[tokens, hidden]`, rows of padding behind them; read at once, since SGLang reuses their memory."""
        assert self._weights is not None
        self._found.append(self._weights @ states[: self._weights.shape[1]].float())

    @contextmanager
    def over(self, ids: Sequence[str], before: Sequence[int], lengths: Sequence[int], device: Any) -> Iterator[None]:
        """One pass: of request `ids[i]`, `lengths[i]` tokens behind `before[i]` that are in the cache."""
        at, rows = 0, []
        for name, prefix, n in zip(ids, before, lengths, strict=True):
            if wish := wish_of(name):
                if prefix <= wish.bounds[0]:  # its first pass, or the first after it was put back
                    self._requests[name] = Sums(wish)
                sums = self._requests[name]
                for segment, (start, end) in enumerate(sums.segments):
                    first, last = max(start - prefix, 0), min(end - prefix, n)
                    if first < last:
                        self._spans.append((sums, segment, last - first))
                        rows.append((at + first, at + last))
            at += n
        if rows:
            weights = torch.zeros(len(rows), at)
            for row, (first, last) in zip(weights, rows, strict=True):
                row[first:last] = 1.0
            self._weights = weights.to(device)
        try:
            yield
            if rows:
                self._settle(torch.stack(self._found))
        finally:
            self._spans, self._weights, self._found = [], None, []

    def _settle(self, found: torch.Tensor) -> None:
        if len(found) != self._n_layers:
            raise RuntimeError(f"{len(found)} of {self._n_layers} layers showed their states; is this SGLang 0.5.23?")
        for i, (sums, segment, n_tokens) in enumerate(self._spans):
            sums.add(segment, n_tokens, found[:, i])
        while len(self._requests) > KEPT:
            del self._requests[next(iter(self._requests))]

    def take(self, name: str) -> dict[str, Any] | None:
        """The answer to a request that is finished, once; None where it asked for nothing."""
        sums = self._requests.pop(name, None)
        return sums.packed() if sums else None

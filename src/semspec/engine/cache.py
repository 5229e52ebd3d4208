"""The key/value cache: transformers' own, with layers that grow in place instead of copying themselves every token.

`transformers.DynamicLayer` concatenates, which copies the whole cache at each decoding step; with dozens of rows that
costs as much as the attention itself. `GrowingLayer` keeps spare room at the end. Knows nothing of models.
"""

from __future__ import annotations

import torch
from transformers import DynamicCache
from transformers.cache_utils import DynamicLayer

from semspec.errors import UserError


class GrowingLayer(DynamicLayer):
    """A `DynamicLayer` whose keys and values are views into buffers with room for `SPARE` more tokens."""

    SPARE = 32

    def update(self, key_states, value_states, *args, **kwargs):  # type: ignore[no-untyped-def]
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
            self._buffers: dict[str, torch.Tensor] = {}
        for name, new in (("keys", key_states), ("values", value_states)):
            setattr(self, name, self._append(name, getattr(self, name), new))
        return self.keys, self.values

    def put(self, name: str, states: torch.Tensor) -> None:
        """Start from given `keys` or `values` `[rows, heads, tokens, head size]`; both must be put."""
        if not self.is_initialized:
            self.lazy_initialization(states, states)
            self._buffers = {}
        setattr(self, name, states)

    def _append(self, name: str, old: torch.Tensor, new: torch.Tensor) -> torch.Tensor:
        length = old.shape[-2] if old.numel() else 0
        end = length + new.shape[-2]
        buffer = self._buffers.get(name)
        # `old` is a prefix of the buffer unless rows were selected or repeated meanwhile
        if buffer is None or buffer.shape[-2] < end or (length and old.data_ptr() != buffer.data_ptr()):
            buffer = new.new_empty(*new.shape[:-2], end + self.SPARE, new.shape[-1])
            if length:
                buffer[..., :length, :] = old
            self._buffers[name] = buffer
        buffer[..., length:end, :] = new
        return buffer[..., :end, :]


def new_cache(config) -> DynamicCache:  # type: ignore[no-untyped-def]
    """An empty cache for a model of this config; `UserError` when its layers keep anything but full attention."""
    cache = DynamicCache(config=config)
    for i, layer in enumerate(cache.layers):
        if type(layer) is not DynamicLayer:
            raise UserError(
                f"model type '{getattr(config, 'model_type', '?')}' has a cache that cannot be rolled back freely "
                f"({type(layer).__name__}); choose a model with full attention in every layer"
            )
        cache.layers[i] = GrowingLayer()
    return cache

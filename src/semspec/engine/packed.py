"""Many texts in one pass of the Hugging Face engine: left-padded rows, and alternatives end to end in one row.

A prompt's cache is computed once, kept for a while, and repeated for its rows. Knows the engine's `forward` and its
caches; which texts there are is decided in batch.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch.nn.functional import pad

from semspec.engine.cache import new_cache
from semspec.engine.pool import Pool

if TYPE_CHECKING:
    from semspec.engine.transformers import TransformersEngine

PREFIXES = 16  # prompts whose caches are kept: those of a shard are sampled from and then read after


def _prefix(engine: TransformersEngine, prompt: Sequence[int]) -> tuple[Any, torch.Tensor]:
    """Cache and last logits `[1, vocab]` of one prompt, computed once while it is among the last `PREFIXES`.

    The cache is shared: nobody appends to it.
    """
    key = tuple(prompt)
    kept = engine.prefixes
    if key not in kept:
        cache = new_cache(engine.config)
        logits = engine.forward(torch.tensor([list(prompt)], device=engine.device), cache, logits_to_keep=1)
        kept[key] = cache, logits[:, -1]
        while len(kept) > PREFIXES:
            kept.pop(next(iter(kept)))
    return kept[key]


class PackedRows:
    """`counts[i]` rows of each prompt, left-padded into one batch; see `engine.local.Rows`."""

    def __init__(self, engine: TransformersEngine, prompts: Sequence[Sequence[int]], counts: Sequence[int]) -> None:
        self._engine, self._cache = engine, new_cache(engine.config)
        longest = max(map(len, prompts))
        made = [_prefix(engine, prompt) for prompt in prompts]
        repeats = torch.tensor(counts, device=engine.device)
        for i, layer in enumerate(self._cache.layers):
            for name in ("keys", "values"):
                parts = [getattr(one.layers[i], name) for one, _ in made]
                rows = torch.cat([pad(p, (0, 0, longest - p.shape[-2], 0)) for p in parts])
                layer.put(name, rows.repeat_interleave(repeats, 0))
        mask = torch.zeros(len(prompts), longest, dtype=torch.long, device=engine.device)
        for i, prompt in enumerate(prompts):
            mask[i, longest - len(prompt) :] = 1
        self._mask = mask.repeat_interleave(repeats, 0)
        self.logits = torch.cat([logits for _, logits in made]).repeat_interleave(repeats, 0)

    def append(self, tokens: torch.Tensor, pool: Pool) -> None:
        positions = self._mask.sum(1, keepdim=True)
        self._mask = torch.cat([self._mask, self._mask.new_ones(len(tokens), 1)], dim=1)
        self.logits = self._engine.forward(
            tokens[:, None], self._cache, pool, attention_mask=self._mask, position_ids=positions, logits_to_keep=1
        )[:, -1]

    def keep(self, rows: torch.Tensor) -> None:
        self._cache.batch_select_indices(rows)
        self._mask = self._mask[rows]


def read_apart(
    engine: TransformersEngine, prompt: Sequence[int], parts: Sequence[Sequence[int]], pool: Pool
) -> tuple[torch.Tensor, torch.Tensor]:
    """See `LocalEngine.read_apart`: the parts lie end to end in ONE row, under a mask that keeps them apart."""
    shared, logits = _prefix(engine, prompt)
    cache, start = new_cache(engine.config), len(prompt)
    for layer, prefix in zip(cache.layers, shared.layers, strict=True):  # the parts' room is let go with this cache
        layer.put("keys", prefix.keys)
        layer.put("values", prefix.values)
    ids = torch.tensor([[t for p in parts for t in p]], device=engine.device)
    owner = torch.repeat_interleave(torch.arange(len(parts)), torch.tensor([len(p) for p in parts])).to(engine.device)
    within = torch.cat([torch.arange(len(p)) for p in parts]).to(engine.device)
    # a token sees the prompt, and what stands before it in its own text
    own = (owner[:, None] == owner[None]) & (within[:, None] >= within[None])
    seen = torch.cat([own.new_ones(len(owner), start), own], dim=1)
    dtype = shared.layers[0].keys.dtype
    # numbers, since a model with eager attention adds what it is given
    mask = torch.zeros(seen.shape, dtype=dtype, device=engine.device).masked_fill_(~seen, torch.finfo(dtype).min)
    positions = (start + within)[None]
    return logits, engine.forward(ids, cache, pool, attention_mask=mask[None, None], position_ids=positions)[0]

"""The decoder layers of Llama and Qwen2 in fewer steps of Python.

Much of what a single token takes beside its products is Python: calls of modules within modules, looked-up attributes,
positions turned for queries and keys apart (docs/log.md has figures). `LeanLayer` does the same operations on the same
numbers, so its results are equal to the last bit; queries and keys are turned together, and what
replace.py has put together is not taken apart. Knows those two layers and nothing else; any other stays as it is.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS
from transformers.models.llama.modeling_llama import LlamaDecoderLayer
from transformers.models.qwen2.modeling_qwen2 import Qwen2DecoderLayer

from semspec.engine.alone import NAME
from semspec.engine.replace import Sibling


def _whole(parent: nn.Module, *names: str) -> Any:
    """The layer that computes all of these at once, as a function; None where there is none."""
    parts = [part for name in names if type(part := getattr(parent, name)) is Sibling]
    if len(parts) < len(names) or len({id(part.together) for part in parts}) > 1:
        return None
    return parts[0].together.linear.forward


class LeanLayer(nn.Module):
    """One decoder layer; `[rows, tokens, hidden]` to the same. Takes what transformers gives a layer, by name."""

    def __init__(self, layer: Any) -> None:
        super().__init__()
        self.layer = layer  # holds the weights
        attention, mlp = layer.self_attn, layer.mlp
        config = attention.config
        size, groups = attention.head_dim, config.num_key_value_heads
        self._heads = (config.num_attention_heads, groups, size)
        self._index, self._scale = attention.layer_idx, attention.scaling
        self._attend = ALL_ATTENTION_FUNCTIONS[config._attn_implementation]
        # functions, since a module looks up its own parts slowly
        self._norms = layer.input_layernorm.forward, layer.post_attention_layernorm.forward
        self._read, self._out = _whole(attention, "q_proj", "k_proj", "v_proj"), attention.o_proj.forward
        self._wide, self._narrow = _whole(mlp, "gate_proj", "up_proj"), mlp.down_proj.forward
        self._function = mlp.act_fn.forward

    def forward(
        self,
        hidden_states: torch.Tensor,
        attention_mask: torch.Tensor | None,
        position_embeddings: tuple[torch.Tensor, torch.Tensor],
        cache: Any = None,
        **kwargs: Any,
    ) -> torch.Tensor:
        before, after = self._norms
        heads, groups, size = self._heads
        rows, n, _ = hidden_states.shape
        all_heads = self._read(before(hidden_states)).view(rows, n, -1, size).transpose(1, 2)
        turning, value = all_heads.split((heads + groups, groups), dim=1)
        cos, sin = (x.unsqueeze(1) for x in position_embeddings)
        first, second = turning.chunk(2, dim=-1)
        turned = turning * cos + torch.cat((-second, first), dim=-1) * sin
        query, key = turned.split((heads, groups), dim=1)
        if cache is not None:
            key, value = cache.layers[self._index].update(key, value)
        attended, _ = self._attend(self.layer.self_attn, query, key, value, attention_mask, scaling=self._scale)
        hidden_states = hidden_states + self._out(attended.reshape(rows, n, -1))
        gate, up = self._wide(after(hidden_states)).chunk(2, dim=-1)
        return hidden_states + self._narrow(self._function(gate) * up)


def _fits(layer: nn.Module) -> bool:
    if type(layer) not in (LlamaDecoderLayer, Qwen2DecoderLayer):
        return False
    attention, mlp = layer.self_attn, layer.mlp
    whole = _whole(attention, "q_proj", "k_proj", "v_proj") and _whole(mlp, "gate_proj", "up_proj")
    return bool(whole) and attention.config._attn_implementation in ("sdpa", NAME)


def make_lean(model: nn.Module) -> None:
    """Put a `LeanLayer` in the place of every decoder layer that fits, in a model that replace.py has gone through."""
    for parts in [m for m in model.modules() if type(m) is nn.ModuleList]:
        for i, layer in enumerate(parts):
            if _fits(layer):
                parts[i] = LeanLayer(layer)

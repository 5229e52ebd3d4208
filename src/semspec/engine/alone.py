"""What gives a token the same, to the last bit, whether it is written alone or read among a few others.

PyTorch's kernels add up several queries in another order than one. In fp32 that is a difference of a millionth, but
where activations are rounded to 8 bits a millionth now and then moves a number to the next level, one moved number
moves others, and after two dozen layers two tokens that are nearly as likely have changed places: text that is verified
several tokens at a time would not be what the model writes by itself. So in a pass over a few tokens of ONE text each
token attends by itself, and has its activation function for itself: of many numbers at once each thread takes a share,
and where a share ends some are computed by other instructions. What else an int8 model computes goes row by row, and
sums of integers have no order; what stays in fp32 (experts, layers that are no `nn.Linear`) may still differ. Knows
nothing of caches or of who reads.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.activations import ACT2FN
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

NAME = "semspec_alone"
FEW = 12  # tokens of a pass; exact verification reads fewer, and for more it would take a share of the time
_FUNCTIONS = {kind[0] if isinstance(kind, tuple) else kind for kind in ACT2FN.values()}  # those of transformers
_one_text = False  # is the pass in the making over one text, without padding?


@contextmanager
def one_text(yes: bool = True) -> Iterator[None]:
    """Passes inside are over one text (or not), whose tokens see everything before them."""
    global _one_text
    before, _one_text = _one_text, yes
    try:
        yield
    finally:
        _one_text = before


def _few(n: int) -> bool:
    return _one_text and n <= FEW


def _attend(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    **kwargs: Any,
) -> tuple[torch.Tensor, None]:
    """As transformers' attention by PyTorch: `query` `[1, heads, tokens, size]` to `[1, tokens, heads, size]`."""
    n, length = query.shape[2], key.shape[2]
    if not _few(n):
        return sdpa_attention_forward(module, query, key, value, attention_mask, **kwargs)
    bias = kwargs.get("position_bias")
    how = {"scale": kwargs.get("scaling"), "enable_gqa": key.shape[1] != query.shape[1]}
    found = []
    for i, end in enumerate(range(length - n + 1, length + 1)):
        own = None if bias is None else bias[:, :, i : i + 1, :end]
        one = query[:, :, i : i + 1], key[:, :, :end], value[:, :, :end], own
        found.append(scaled_dot_product_attention(*one, **how))
    return torch.cat(found, dim=2).transpose(1, 2).contiguous(), None


def _mask(q_length: int, **kwargs: Any) -> torch.Tensor | None:
    """None where each token attends by itself."""
    return None if _few(q_length) else sdpa_mask(q_length=q_length, **kwargs)


class Activation(torch.nn.Module):
    """An activation function, `[1, tokens, size]` to the same."""

    def __init__(self, function: torch.nn.Module) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        n = x.shape[-2]
        if n == 1 or not _few(n):
            return self.function(x)
        return torch.cat([self.function(row) for row in x.split(1, dim=-2)], dim=-2)


def separate(model: torch.nn.Module) -> None:
    """Every activation function of a model goes token by token where the pass is over few."""
    for parent in list(model.modules()):
        for name, child in list(parent.named_children()):
            if type(child) in _FUNCTIONS:
                setattr(parent, name, Activation(child))


AttentionInterface.register(NAME, _attend)
AttentionMaskInterface.register(NAME, _mask)

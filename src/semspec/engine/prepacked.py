"""bf16 linear layers for CPUs that compute bf16 themselves, their weights laid out once as the kernel reads them.

PyTorch's own layer hands oneDNN the weights as the file has them, in which a single token is read at half of the
memory's speed. Here they are reordered when the model is loaded, for passes of `_ROWS` rows; the same layout serves all
others. Inputs, outputs and weights are bf16, sums fp32, as before: only the order of a sum differs.
"""

from __future__ import annotations

import torch
from torch import nn

from semspec.engine.int8 import bias_of

_ROWS = 32  # a layout for one row alone is slower even for one row


def wanted() -> bool:
    """Whether this CPU has AVX-512's bf16 instructions. One with AMX has other kernels, where it was not measured."""
    own = torch.cpu._is_avx512_bf16_supported() and not torch.cpu._is_amx_tile_supported()
    return own and torch.backends.mkldnn.is_available()


class PrepackedLinear(nn.Module):
    """`nn.Linear` with reordered bf16 weights `[out, in]`; bf16 in and out. Given several, outputs follow."""

    dtype = torch.bfloat16

    def __init__(self, *linears: nn.Linear) -> None:
        super().__init__()
        self.sizes = [linear.out_features for linear in linears]
        weights = [linear.weight.detach() for linear in linears]
        weight = weights[0] if len(weights) == 1 else torch.cat(weights)
        bias = bias_of(linears)
        self.bias = None if bias is None else bias.to(self.dtype)
        self._packed = torch.ops.mkldnn._reorder_linear_weight(weight, _ROWS)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = torch.ops.mkldnn._linear_pointwise.default(x, self._packed, self.bias, "none", [], "")
        return out

"""16-bit linear layers for CPUs without bf16 instructions, where PyTorch emulates them.

The weights are those of the bf16 file, held as fp16 by FBGEMM and turned into fp32 while they are read; the products
are fp32. So the result is the fp32 model's, at half of its bytes. A bf16 number has fewer digits than fp16 and loses
none; weights below 1e-5, which are next to nothing, are rounded to steps of 6e-8. PyTorch's own bf16 needs a third more
for a token there, and ten times as long to read a prompt.
"""

from __future__ import annotations

import torch
from torch import nn

from semspec.engine.int8 import bias_of

_linear = torch.ops.quantized.linear_dynamic_fp16  # "dynamic" by name only: nothing of the input is quantised


def wanted() -> bool:
    """Whether this CPU computes bf16 in software, and FBGEMM, which is for x86 alone, is there to do better."""
    own = torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported()
    return not own and torch.cpu._is_avx2_supported() and "fbgemm" in torch.backends.quantized.supported_engines


class HalfLinear(nn.Module):
    """`nn.Linear` with fp16 weights `[out, in]`; fp32 in, fp32 out. Given several, their outputs follow each other."""

    def __init__(self, *linears: nn.Linear) -> None:
        super().__init__()
        self.sizes = [linear.out_features for linear in linears]
        weight = torch.cat([linear.weight.detach().float() for linear in linears])
        self._packed = torch.ops.quantized.linear_prepack_fp16(weight, bias_of(linears))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = _linear(x, self._packed)
        return out

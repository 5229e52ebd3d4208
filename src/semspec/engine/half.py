"""16-bit linear layers for CPUs without bf16 instructions, where PyTorch emulates them.

The weights are those of the bf16 file, held as fp16 by FBGEMM and turned into fp32 while they are read; the products
are fp32. So the result is the fp32 model's, and a linear layer has half of its bytes (a little more where its input's
width is no multiple of 512); what is no linear layer becomes fp32. A bf16 number has fewer digits than fp16 and loses
none; weights below 1e-5, which are next to nothing, are rounded to steps of 6e-8, and those above 65504 are refused.
PyTorch's own bf16 needs a third more for a token there, and ten times as long to read a prompt.
"""

from __future__ import annotations

import torch
from torch import nn

from semspec.engine.int8 import bias_of

_linear = torch.ops.quantized.linear_dynamic_fp16.default  # "dynamic" by name only: nothing of the input is quantised


_LARGEST = torch.finfo(torch.float16).max


def wanted(model: nn.Module) -> bool:
    """Whether this CPU computes bf16 in software, and FBGEMM, which is for x86 alone, could do most of `model` instead.

    Experts of a mixture are often no linear layers; in fp32 they would need twice the memory and gain nothing.
    """
    own = torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported()
    if own or not torch.cpu._is_avx2_supported() or "fbgemm" not in torch.backends.quantized.supported_engines:
        return False
    parts = [m for m in model.modules() if type(m) in (nn.Linear, nn.Embedding)]
    packed = {id(p): p.numel() for m in parts for p in m.parameters(recurse=False)}
    return sum(packed.values()) > 0.9 * sum(p.numel() for p in model.parameters())


class HalfLinear(nn.Module):
    """`nn.Linear` with fp16 weights `[out, in]`; fp32 in, fp32 out. Given several, their outputs follow each other."""

    dtype = torch.float32

    def __init__(self, *linears: nn.Linear) -> None:
        super().__init__()
        self.sizes = [linear.out_features for linear in linears]
        weights = [linear.weight.detach().float() for linear in linears]
        weight = weights[0] if len(weights) == 1 else torch.cat(weights)
        if not weight.abs().max() <= _LARGEST:  # NaN too
            raise ValueError("a weight is no number, or beyond fp16; set engine.weights to fp32")
        self._packed = torch.ops.quantized.linear_prepack_fp16(weight, bias_of(linears))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = _linear(x, self._packed)
        return out

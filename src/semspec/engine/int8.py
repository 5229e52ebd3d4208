"""int8 linear layers for CPUs: weights quantised once per output channel, activations on the fly.

On a CPU decoding is bound by reading the weights, so a quarter of the bytes is most of the speed. The kernels are
PyTorch's; which one is `Int8Linear`'s affair and nobody else's. They take one activation scale per call, which ruins a
language model: the first token of a prompt has activations hundreds of times larger than the others', which then share
what is left of 8 bits. So each row is brought to the same range first. Every token has a scale of its own, and its
result does not depend on what is batched with it: to the last bit in passes of up to `FEW` tokens, which one kernel
computes; in wider ones up to rounding at the edge of a level.

FBGEMM is the faster kernel for a single token and uses no AMX. On a CPU with AMX the weights are packed a second time
for oneDNN, which takes half the time from a few dozen rows on: reading a step, sampling in batches. Products are summed
in integers, so both give the same numbers.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn

from semspec.engine.alone import FEW

_ROWS = 256  # rows quantised at a time: their fp32 copy stays in the cache, which makes it four times faster
_ACTIVATIONS = 127
_ZERO = _ACTIVATIONS + 1
# without VNNI instructions the kernels add pairs of products in 16 bits: 2 * 255 * 64 still fits. A bit less for the
# weights, which have few outliers, costs a third to a ninth of the divergence that a bit less for the activations does
_WEIGHTS = 127 if torch.cpu._is_vnni_supported() else 64
_linear = torch.ops.quantized.linear_with_input_q_dq_qweight_dq_output_fp32.default
_AMX = torch.cpu._is_amx_tile_supported()
_AMX_ROWS = FEW + 1  # from so many rows on


def bias_of(linears: Sequence[nn.Linear]) -> torch.Tensor | None:
    """The biases of several layers one after the other, zeros where one has none; None where none has any."""
    if all(linear.bias is None for linear in linears):
        return None
    return torch.cat([torch.zeros(x.out_features) if x.bias is None else x.bias.detach().float() for x in linears])


class Int8Linear(nn.Module):
    """`nn.Linear` with int8 weights `[out, in]`, symmetric per output channel; fp32 in, fp32 out.

    Given several, it is all of them, their outputs one after the other.
    """

    dtype = torch.float32

    def __init__(self, *linears: nn.Linear) -> None:
        super().__init__()
        self.sizes = [linear.weight.shape[0] for linear in linears]
        values = torch.empty((sum(self.sizes), linears[0].weight.shape[1]), dtype=torch.int8)
        scales = torch.empty(len(values), dtype=torch.float32)
        places = zip(values.split(self.sizes), scales.split(self.sizes), linears, strict=True)
        for its_values, its_scales, linear in places:
            weight = linear.weight.detach()
            for i in range(0, len(weight), _ROWS):
                rows = weight[i : i + _ROWS].float()
                scale = rows.abs().amax(dim=1).clamp_min(1e-12) / _WEIGHTS
                its_values[i : i + _ROWS] = rows.div(scale[:, None]).round_().clamp_(-_WEIGHTS, _WEIGHTS)
                its_scales[i : i + _ROWS] = scale
        tensor = torch._make_per_channel_quantized_tensor(
            values, scales.double(), torch.zeros(len(scales), dtype=torch.long), 0
        )
        self.bias = bias_of(linears)
        self._packed = torch.ops.quantized.linear_prepack(tensor, None)
        if _AMX:
            self._tiles = torch.ops.onednn.qlinear_prepack(values, None)
            self._scales, self._zeros = scales, torch.zeros(len(scales), dtype=torch.long)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        rows = x.numel() // x.shape[-1]
        if _AMX and rows >= _AMX_ROWS:
            scale = x.abs().amax(-1, keepdim=True).clamp_min_(1e-12).div_(127)
            out = torch.ops.onednn.qlinear_pointwise(
                (x / scale).round_().to(torch.int8),
                *(1.0, 0, self._tiles, self._scales, self._zeros),
                *(None, 1.0, 0, torch.float32, "none", [], ""),
            ).mul_(scale)
        else:
            of_row = torch.linalg.vector_norm(x, float("inf"), -1, keepdim=True).clamp_min_(1e-12)  # the largest
            out = _linear(x / of_row, 1 / _ACTIVATIONS, _ZERO, self._packed).mul_(of_row)
        return out if self.bias is None else out.add_(self.bias)

"""int8 linear layers for CPUs: weights quantised once per output channel, activations on the fly.

On a CPU decoding is bound by reading the weights, so a quarter of the bytes is most of the speed. The kernels are
PyTorch's; the choice of kernel lives behind `quantise` and nowhere else. They take one activation scale per call, which
ruins a language model: the first token of a prompt has activations hundreds of times larger than the others', which
then share what is left of 8 bits. So each row is brought to the same range first. Every token has a scale of its own,
and its result does not depend on what is batched with it (up to rounding at the edge of a level).

FBGEMM is the faster kernel for a single token and uses no AMX. On a CPU with AMX the weights are packed a second time
for oneDNN, which takes half the time from a few dozen rows on: reading a step, sampling in batches. Products are summed
in integers, so both give the same numbers.
"""

from __future__ import annotations

import warnings
from concurrent.futures import ThreadPoolExecutor

import torch
from torch import nn

_ROWS = 256  # rows quantised at a time: their fp32 copy stays in the cache, which makes it four times faster
# without VNNI instructions the kernels add pairs of products in 16 bits, which only 7-bit activations can't overflow
_LEVELS = 127 if torch.cpu._is_vnni_supported() else 63
_ZERO = _LEVELS + 1
_linear = torch.ops.quantized.linear_with_input_q_dq_qweight_dq_output_fp32
_AMX = torch.cpu._is_amx_tile_supported()
_AMX_ROWS = 8  # from so many rows on


class Int8Linear(nn.Module):
    """`nn.Linear` with int8 weights `[out, in]`, symmetric per output channel; fp32 in, fp32 out."""

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        weight = linear.weight.detach()
        values = torch.empty(weight.shape, dtype=torch.int8)
        scales = torch.empty(weight.shape[0], dtype=torch.float32)
        for i in range(0, weight.shape[0], _ROWS):
            rows = weight[i : i + _ROWS].float()
            scale = rows.abs().amax(dim=1).clamp_min(1e-12) / 127.0
            values[i : i + _ROWS] = rows.div(scale[:, None]).round_().clamp_(-127, 127)
            scales[i : i + _ROWS] = scale
        tensor = torch._make_per_channel_quantized_tensor(
            values, scales.double(), torch.zeros(len(scales), dtype=torch.long), 0
        )
        self.bias = None if linear.bias is None else linear.bias.detach().float()
        self._packed = torch.ops.quantized.linear_prepack(tensor, None)
        if _AMX:
            self._tiles = torch.ops.onednn.qlinear_prepack(values, None)
            self._scales, self._zeros = scales, torch.zeros(len(scales), dtype=torch.long)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        rows = x.numel() // x.shape[-1]
        if rows == 1:  # its scale is the call's
            largest = float(x.abs().max()) or 1.0
            out = _linear(x, largest / _LEVELS, _ZERO, self._packed)
        elif _AMX and rows >= _AMX_ROWS:
            scale = x.abs().amax(-1, keepdim=True).clamp_min_(1e-12).div_(127)
            out = torch.ops.onednn.qlinear_pointwise(
                (x / scale).round_().to(torch.int8),
                *(1.0, 0, self._tiles, self._scales, self._zeros),
                *(None, 1.0, 0, torch.float32, "none", [], ""),
            ).mul_(scale)
        else:
            of_row = x.abs().amax(-1, keepdim=True).clamp_min_(1e-12)
            out = _linear(x / of_row, 1 / _LEVELS, _ZERO, self._packed).mul_(of_row)
        return out if self.bias is None else out.add_(self.bias)


def quantise(model: nn.Module) -> nn.Module:
    """Replace every `nn.Linear` in place (output head included); everything else becomes fp32."""
    places = [
        (parent, name, child)
        for parent in model.modules()
        for name, child in parent.named_children()
        if isinstance(child, nn.Linear)
    ]
    places.sort(key=lambda place: -place[2].weight.numel())
    # packing is single-threaded inside PyTorch, so several layers are packed side by side, the largest first
    with warnings.catch_warnings(), ThreadPoolExecutor(torch.get_num_threads()) as workers:
        warnings.simplefilter("ignore")  # quantised tensors are announced to leave PyTorch one day
        made = workers.map(Int8Linear, (child for _, _, child in places))
        for (parent, name, _), linear in zip(places, made, strict=True):
            setattr(parent, name, linear)
    return model.float()

"""int8 linear layers for CPUs: weights quantised once per output channel, activations on the fly.

On a CPU decoding is bound by reading the weights, so a quarter of the bytes is most of the speed. The kernels are
PyTorch's (`quantized::linear_dynamic`); the choice of kernel lives behind `quantise` and nowhere else. One property to
know: the activation scale is shared by all rows of a call, so results depend a little on what is batched together.
"""

from __future__ import annotations

import warnings
from concurrent.futures import ThreadPoolExecutor

import torch
from torch import nn

_ROWS = 256  # rows quantised at a time: their fp32 copy stays in the cache, which makes it four times faster


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
            values[i : i + _ROWS] = rows.div_(scale[:, None]).round_().clamp_(-127, 127)
            scales[i : i + _ROWS] = scale
        tensor = torch._make_per_channel_quantized_tensor(
            values, scales.double(), torch.zeros(len(scales), dtype=torch.long), 0
        )
        bias = None if linear.bias is None else linear.bias.detach().float()
        self._packed = torch.ops.quantized.linear_prepack(tensor, bias)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        # reduce_range: 7-bit activations, which the AVX2 kernels need to stay clear of overflow
        return torch.ops.quantized.linear_dynamic(x, self._packed, True)


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

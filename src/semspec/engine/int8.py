"""int8 linear layers for CPUs: weights quantised once per output channel, activations on the fly.

On a CPU decoding is bound by reading the weights, so a quarter of the bytes is most of the speed. The kernels are
PyTorch's; the choice of kernel lives behind `quantise` and nowhere else. They take one activation scale per call, which
ruins a language model: the first token of a prompt has activations hundreds of times larger than the others', which
then share what is left of 8 bits. So each row is brought to the same range first. Every token has a scale of its own,
and its result does not depend on what is batched with it (up to rounding at the edge of a level).

FBGEMM is the faster kernel for a single token and uses no AMX. On a CPU with AMX the weights are packed a second time
for oneDNN, which takes half the time from a few dozen rows on: reading a step, sampling in batches. Products are summed
in integers, so both give the same numbers.

What is not arithmetic counts for a single token: waking the threads for each of two hundred products, six small
operations for each norm. So layers that read the same input are one product, and a norm is PyTorch's one operation.
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
_SIBLINGS = (("q_proj", "k_proj", "v_proj"), ("gate_proj", "up_proj"))  # read the same input in Llama's descendants


class Int8Linear(nn.Module):
    """`nn.Linear` with int8 weights `[out, in]`, symmetric per output channel; fp32 in, fp32 out.

    Given several, it is all of them, their outputs one after the other.
    """

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
                scale = rows.abs().amax(dim=1).clamp_min(1e-12) / 127.0
                its_values[i : i + _ROWS] = rows.div(scale[:, None]).round_().clamp_(-127, 127)
                its_scales[i : i + _ROWS] = scale
        tensor = torch._make_per_channel_quantized_tensor(
            values, scales.double(), torch.zeros(len(scales), dtype=torch.long), 0
        )
        self.bias: torch.Tensor | None = None
        if any(linear.bias is not None for linear in linears):
            none = [torch.zeros(size) for size in self.sizes]
            own = [n if x.bias is None else x.bias.detach().float() for n, x in zip(none, linears, strict=True)]
            self.bias = torch.cat(own)
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


class Sibling(nn.Module):
    """One of the layers that an `Int8Linear` is together; whichever is asked first computes for all."""

    def __init__(self, together: Together, place: int) -> None:
        super().__init__()
        self.together, self.place = together, place

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.together.take(x, self.place)


class Together(nn.Module):
    """An `Int8Linear` of several layers, and their outputs for one input until each has been taken."""

    def __init__(self, *linears: nn.Linear) -> None:
        super().__init__()
        self.linear = Int8Linear(*linears)
        self._clear()

    def _clear(self) -> None:
        self._x: torch.Tensor | None = None
        self._left: dict[int, torch.Tensor] = {}

    def take(self, x: torch.Tensor, place: int) -> torch.Tensor:
        if x is not self._x or place not in self._left:  # another input, or the same once more
            self._x, self._left = x, dict(enumerate(self.linear(x).split(self.linear.sizes, dim=-1)))
        out = self._left.pop(place)
        if not self._left:
            self._clear()  # a batch's activations are large
        return out


def _linears(model: nn.Module) -> list[tuple[nn.Module, tuple[str, ...]]]:
    """(parent, names) of every linear layer, those that read the same input together."""
    places: list[tuple[nn.Module, tuple[str, ...]]] = []
    for parent in model.modules():
        names = [name for name, child in parent.named_children() if isinstance(child, nn.Linear)]
        for group in (group for group in _SIBLINGS if set(group) <= set(names)):
            if len({getattr(parent, name).in_features for name in group}) == 1:
                places.append((parent, group))
                names = [name for name in names if name not in group]
        places += [(parent, (name,)) for name in names]
    return places


def _norms(model: nn.Module) -> None:
    """PyTorch's RMSNorm in place of every module that says to be one and gives the same."""
    for parent in list(model.modules()):
        for name, child in list(parent.named_children()):
            eps = getattr(child, "variance_epsilon", None)
            if type(child).__name__.endswith("RMSNorm") and eps is not None:
                norm = nn.RMSNorm(child.weight.shape, eps=eps)
                norm.weight = child.weight
                x = torch.linspace(-3, 5, child.weight.numel())
                if torch.allclose(norm(x), child(x), rtol=1e-5, atol=1e-6):
                    setattr(parent, name, norm)


def quantise(model: nn.Module) -> nn.Module:
    """Replace every `nn.Linear` in place (output head included); everything else becomes fp32."""
    size = lambda place: sum(getattr(place[0], name).weight.numel() for name in place[1])  # noqa: E731
    places = sorted(_linears(model), key=size, reverse=True)

    def packed(place: tuple[nn.Module, tuple[str, ...]]) -> list[nn.Module]:
        linears = [getattr(place[0], name) for name in place[1]]
        if len(linears) == 1:
            return [Int8Linear(*linears)]
        together = Together(*linears)
        return [Sibling(together, i) for i in range(len(linears))]

    # packing is single-threaded inside PyTorch, so several layers are packed side by side, the largest first
    with warnings.catch_warnings(), ThreadPoolExecutor(torch.get_num_threads()) as workers:
        warnings.simplefilter("ignore")  # quantised tensors are announced to leave PyTorch one day
        for (parent, names), made in zip(places, workers.map(packed, places), strict=True):
            for name, layer in zip(names, made, strict=True):
                setattr(parent, name, layer)
    model.float()
    with torch.no_grad():
        _norms(model)
    return model

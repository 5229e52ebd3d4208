"""A model's linear layers and norms replaced by ones that take less time on a CPU.

What is not arithmetic counts for a single token: waking the threads for each of two hundred products, six small
operations for each norm. So layers that read the same input become one product, and a norm becomes PyTorch's one
operation. Knows the names that Llama's descendants give their layers; what computes a product is the caller's choice.
"""

from __future__ import annotations

import warnings
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch
from torch import nn

from semspec.engine.half import HalfLinear
from semspec.engine.int8 import Int8Linear
from semspec.engine.prepacked import PrepackedLinear

Product = Int8Linear | HalfLinear | PrepackedLinear
Kind = type[Product]
_SIBLINGS = (("q_proj", "k_proj", "v_proj"), ("gate_proj", "up_proj"))  # those of a layer that read the same input
_NEAR = {torch.float32: 1e-5, torch.bfloat16: 1e-2}  # two norms of a format that are the same one


class Together(nn.Module):
    """Several layers as one, and their outputs for one input until each has been taken. For one thread at a time."""

    def __init__(self, linear: Product) -> None:
        super().__init__()
        self.linear = linear
        # the input and what has not been taken; in a list, since a module is slow to set its own attributes
        self.held: list[Any] = [None, {}]

    def take(self, x: torch.Tensor, place: int) -> torch.Tensor:
        """The output of one of them; whichever is asked first computes for all."""
        of, left = self.held
        if x is not of or place not in left:  # another input, or the same once more
            left = dict(enumerate(self.linear(x).split(self.linear.sizes, dim=-1)))
            self.held[:] = x, left
        out: torch.Tensor = left.pop(place)
        if not left:
            self.held[:] = None, {}  # a batch's activations are large
        return out


class Sibling(nn.Module):
    """One of the layers that are together, in its own place of the model."""

    def __init__(self, together: Together, place: int) -> None:
        super().__init__()
        self.together, self.place = together, place

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.together.take(x, self.place)


def _linears(model: nn.Module, dtype: torch.dtype | None) -> list[tuple[nn.Module, tuple[str, ...]]]:
    """(parent, names) of every linear layer in `dtype` (None: any), those that read the same input together."""
    places: list[tuple[nn.Module, tuple[str, ...]]] = []
    for parent in model.modules():
        # a subclass computes something else: a router of experts, an adapter
        plain = [(name, child) for name, child in parent.named_children() if type(child) is nn.Linear]
        names = [name for name, linear in plain if dtype in (None, linear.weight.dtype)]
        for group in (group for group in _SIBLINGS if set(group) <= set(names)):
            if len({getattr(parent, name).in_features for name in group}) == 1:
                places.append((parent, group))
                names = [name for name in names if name not in group]
        places += [(parent, (name,)) for name in names]
    return places


def _replace_norms(model: nn.Module, dtype: torch.dtype) -> None:
    """PyTorch's RMSNorm in place of those of transformers in `dtype`, where it gives the same."""
    for parent in list(model.modules()):
        for name, child in list(parent.named_children()):
            eps = getattr(child, "variance_epsilon", None)
            kind = type(child)
            theirs = kind.__name__.endswith("RMSNorm") and kind.__module__.startswith("transformers.")
            weight = getattr(child, "weight", None)
            if theirs and eps is not None and weight is not None and weight.dtype is dtype:
                norm = nn.RMSNorm(weight.shape, eps=eps)
                norm.weight = weight
                x = torch.linspace(-3, 5, weight.numel(), dtype=dtype)
                if torch.allclose(norm(x), child(x), rtol=_NEAR[dtype], atol=1e-6):
                    setattr(parent, name, norm)


@torch.no_grad()
def replace(model: nn.Module, kind: Kind) -> nn.Module:
    """Replace every plain `nn.Linear` in place (output head included) by a `kind`, and norms by PyTorch's.

    Where a `kind` takes fp32, everything else becomes fp32; where it takes bf16, what is not bf16 stays as it is.
    """
    half = kind.dtype is not torch.float32

    def packed(place: tuple[nn.Module, tuple[str, ...]]) -> list[nn.Module]:
        linear = kind(*(getattr(place[0], name) for name in place[1]))
        if len(place[1]) == 1:
            return [linear]
        together = Together(linear)
        return [Sibling(together, i) for i in range(len(place[1]))]

    size = lambda place: sum(getattr(place[0], name).weight.numel() for name in place[1])  # noqa: E731
    places = sorted(_linears(model, kind.dtype if half else None), key=size, reverse=True)
    # packing is single-threaded inside PyTorch, so several layers are packed side by side, the largest first
    with warnings.catch_warnings(), ThreadPoolExecutor(torch.get_num_threads()) as workers:
        warnings.simplefilter("ignore")  # quantised tensors are announced to leave PyTorch one day
        for (parent, names), made in zip(places, workers.map(packed, places), strict=True):
            for name, layer in zip(names, made, strict=True):
                setattr(parent, name, layer)
    if not half:
        model.float()
    for parameter in model.parameters() if half else ():
        parameter.data = parameter.data.clone()  # else the file stays in memory, for the embedding's sake
    _replace_norms(model, kind.dtype)
    return model

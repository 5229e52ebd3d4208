"""Layers and norms that stand in for a model's own: the same numbers, fewer operations."""

from __future__ import annotations

import pytest
import torch
from tiny import tiny_engine

from semspec.engine import half, prepacked, transformers
from semspec.engine.half import HalfLinear
from semspec.engine.int8 import Int8Linear
from semspec.engine.prepacked import PrepackedLinear
from semspec.engine.replace import Sibling, Together, replace

bf16_here = pytest.mark.skipif(not prepacked.wanted(), reason="this CPU computes bf16 in another way")
NEAR = {torch.float32: 1e-5, torch.bfloat16: 1e-2}
KINDS = [Int8Linear, HalfLinear, pytest.param(PrepackedLinear, marks=bf16_here)]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("n", [1, 5, 20])
@pytest.mark.parametrize("biases", [(True, True), (False, False), (True, False)])
def test_layers_together_give_what_each_gives_alone(kind, n, biases):
    """In any order, one of them twice, after another input; nothing is kept once all have been asked."""
    dtype = kind.dtype  # of the input
    linears = [torch.nn.Linear(96, size, bias, dtype=dtype) for size, bias in zip((40, 8), biases, strict=True)]
    together = Together(kind(*linears))
    first, second = Sibling(together, 0), Sibling(together, 1)
    x, y = torch.randn(2, n, 96, dtype=dtype), torch.randn(2, n, 96, dtype=dtype)
    with torch.no_grad():
        alone = [[kind(linear)(rows) for rows in (x, y)] for linear in linears]
        for layer, rows, expected in (
            (second, x, alone[1][0]),
            (first, x, alone[0][0]),
            (first, x, alone[0][0]),
            (first, x, alone[0][0]),
            (second, y, alone[1][1]),
            (first, y, alone[0][1]),
        ):
            assert torch.allclose(layer(rows), expected, rtol=NEAR[dtype], atol=1e-6)
    assert together.held == [None, {}]


@pytest.mark.parametrize("kind", KINDS)
def test_a_models_siblings_and_norms_are_one_operation_each(kind):
    """Four products in a layer of seven."""
    weights = {Int8Linear: "int8", HalfLinear: "half", PrepackedLinear: "prepacked"}
    model = tiny_engine(weights=weights[kind]).model
    products = [m for m in model.modules() if isinstance(m, kind)]
    assert sorted(len(m.sizes) for m in products) == [1] * 7 + [2] * 3 + [3] * 3
    assert {type(m).__name__ for m in model.modules() if "Norm" in type(m).__name__} == {"RMSNorm"}


@bf16_here
def test_a_model_in_bf16_keeps_what_was_not():
    """Positions turn by frequencies in fp32; in bf16 they would be off by a turn soon. So do layers kept in fp32."""
    model = tiny_engine("llama").model
    for parameter in model.parameters():
        parameter.data = parameter.data.bfloat16()
    model.router, model.norm = torch.nn.Linear(64, 4), model.model.norm.float()
    transformers.placed(model, "bf16", "cpu")
    assert type(model.router) is torch.nn.Linear and type(model.norm) is not torch.nn.RMSNorm
    assert model.model.rotary_emb.inv_freq.dtype is torch.float32
    assert isinstance(model.lm_head, PrepackedLinear)


def test_a_norm_that_is_another_one_by_the_same_name_stays():
    class OddRMSNorm(torch.nn.Module):
        variance_epsilon = 1e-6

        def __init__(self):
            super().__init__()
            self.weight = torch.nn.Parameter(torch.ones(8))

        def forward(self, x):
            return torch.nn.functional.rms_norm(x, (8,), 1 + self.weight, 1e-6)

    class StrangeRMSNorm(OddRMSNorm):
        def forward(self, x):
            raise AssertionError("a norm of other code than transformers' is not touched")

    OddRMSNorm.__module__ = "transformers.models.odd"
    left = replace(torch.nn.Sequential(OddRMSNorm(), StrangeRMSNorm()), Int8Linear)
    assert [type(m) for m in left] == [OddRMSNorm, StrangeRMSNorm]


def test_a_subclass_of_linear_keeps_its_own_forward():
    """Routers of mixtures give more than a product."""

    class Router(torch.nn.Linear):
        def forward(self, x):
            scores = super().forward(x)
            return scores, scores.argmax(-1)

    model = replace(torch.nn.ModuleList([Router(8, 4, dtype=torch.bfloat16), torch.nn.Linear(8, 8)]), HalfLinear)
    assert len(model[0](torch.ones(1, 8))) == 2 and isinstance(model[1], HalfLinear)


@pytest.mark.parametrize("weight", [1e5, float("inf"), float("nan")])
def test_weights_that_fp16_cannot_hold_are_refused(weight):
    linear = torch.nn.Linear(8, 8)
    with torch.no_grad():
        linear.weight[3, 3] = weight
    with pytest.raises(ValueError, match=r"set engine\.weights to fp32"):
        HalfLinear(linear)


def test_a_mixture_of_experts_stays_in_bf16(monkeypatch):
    """Only where linear layers and embeddings are nearly all of a model does it pay."""
    monkeypatch.setattr(torch.cpu, "_is_avx512_bf16_supported", lambda: False)
    monkeypatch.setattr(torch.cpu, "_is_amx_tile_supported", lambda: False)
    if "fbgemm" not in torch.backends.quantized.supported_engines or not torch.cpu._is_avx2_supported():
        pytest.skip("FBGEMM is for x86")
    dense = torch.nn.Sequential(torch.nn.Embedding(50, 8), torch.nn.Linear(8, 64), torch.nn.Linear(64, 8))
    assert half.wanted(dense)
    dense.register_parameter("experts", torch.nn.Parameter(torch.zeros(4, 16, 16)))
    assert not half.wanted(dense)


def test_bf16_weights_lose_nothing_as_fp16():
    """What FBGEMM multiplies with is the file's number, for weights of the size that models have."""
    linear = torch.nn.Linear(64, 33, bias=False, dtype=torch.bfloat16)
    with torch.no_grad():
        linear.weight[0] = 3e-5
        linear.weight[1, :2] = torch.tensor([11.5, -240.0])
        exact = torch.eye(64) @ linear.weight.float().T
        assert torch.equal(HalfLinear(linear)(torch.eye(64)), exact)


@pytest.mark.parametrize(("emulated", "expected"), [(True, torch.float32), (False, torch.bfloat16)])
def test_bf16_is_computed_in_fp32_where_a_cpu_would_emulate_it(monkeypatch, emulated, expected):
    monkeypatch.setattr(half, "wanted", lambda model: emulated)
    model = tiny_engine("llama", weights="bf16").model
    assert next(transformers.placed(model, "bf16", "cpu").parameters()).dtype is expected

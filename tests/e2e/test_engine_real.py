"""The engine on a real model: the conformance suite in fp32 and bf16 on SmolLM2-135M."""

from __future__ import annotations

import pytest
from conformance import EngineConformance

from semspec.engine.transformers import load
from semspec.models import ensure

NAME = "smollm2-135m-instruct"


@pytest.mark.model
class TestFp32(EngineConformance):
    """Pooled states equal those of a plain forward pass."""

    @pytest.fixture(scope="class")
    def engine(self):
        return load(ensure(NAME), NAME, weights="fp32", device="cpu")


@pytest.mark.model_full
class TestBf16(EngineConformance):
    """The lowest cosine of any layer is at least 0.9998."""

    exact = False

    @pytest.fixture(scope="class")
    def engine(self):
        return load(ensure(NAME), NAME, weights="bf16", device="cpu")


@pytest.mark.model_full
class TestInt8(EngineConformance):
    """Each row has an activation scale of its own, so that a pass over many tokens rounds nearly as one over each."""

    exact = False
    min_cosine = 0.99

    @pytest.fixture(scope="class")
    def engine(self):
        return load(ensure(NAME), NAME, weights="int8", device="cpu")

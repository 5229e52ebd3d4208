"""The engines on a real model: the conformance suite on SmolLM2-135M, in every number format."""

from __future__ import annotations

import importlib.util

import pytest
from conformance import EngineConformance, plain_forward

from semspec.engine import load as load_engine
from semspec.engine.transformers import load
from semspec.models import ensure, gguf
from semspec.schema import Engine as EngineSettings

NAME = "smollm2-135m-instruct"


@pytest.mark.model
class TestFp32(EngineConformance):
    """Pooled states equal those of a plain forward pass."""

    @pytest.fixture(scope="class")
    def engine(self):
        return load(ensure(NAME), NAME, weights="fp32", device="cpu", threads=1)


@pytest.mark.model_full
class TestBf16(EngineConformance):
    """The lowest cosine of any layer is at least 0.9998."""

    exact = False

    @pytest.fixture(scope="class")
    def engine(self):
        return load(ensure(NAME), NAME, weights="bf16", device="cpu", threads=1)


@pytest.mark.model_full
class TestInt8(EngineConformance):
    """Each row has an activation scale of its own, so that a pass over many tokens rounds nearly as one over each."""

    exact = False
    min_cosine = 0.99

    @pytest.fixture(scope="class")
    def engine(self):
        return load(ensure(NAME), NAME, weights="int8", device="cpu", threads=1)


@pytest.mark.model
@pytest.mark.skipif(importlib.util.find_spec("llama_cpp") is None, reason="needs llama-cpp-python")
class TestLlamaCpp(EngineConformance):
    """The GGUF file as it is, held against the dequantised model in fp32: activations are quantised by blocks of 32."""

    exact = False
    min_cosine = 0.998  # measured: .9994 for single tokens, .9998 for steps

    @pytest.fixture(scope="class")
    def engine(self):
        type(self).twin = load(ensure(NAME), NAME, weights="fp32", device="cpu", threads=1)
        return load_engine(NAME, EngineSettings(kind="llamacpp", threads=1))

    def reference(self, engine, tokens):
        return plain_forward(self.twin, tokens)

    def test_the_words_are_those_of_the_other_engine(self, engine):
        """Ids, prompts and ends agree, with the file's own tokenizer too."""
        own = load_engine(str(gguf(NAME)), EngineSettings(kind="llamacpp", threads=1))
        for other in (self.twin, own):
            assert (engine.vocab_id, engine.eos_id) == (other.vocab_id, other.eos_id)
            assert engine.eos_ids <= other.eos_ids  # llama.cpp takes <|endoftext|> for an end as well
            assert engine.chat("2+2?", "Think.") == other.chat("2+2?", "Think.")

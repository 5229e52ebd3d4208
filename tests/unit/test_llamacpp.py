"""The llama.cpp engine passes the conformance suite against a Hugging Face model of the same weights."""

from __future__ import annotations

import importlib.util
from typing import ClassVar

import pytest
from conformance import EngineConformance, plain_forward
from tiny_gguf import tiny_pair

needs_llama = pytest.mark.skipif(importlib.util.find_spec("llama_cpp") is None, reason="needs llama-cpp-python")


class Twins(EngineConformance):
    """The reference is the Hugging Face model that the GGUF file was written from."""

    kwargs: ClassVar[dict] = {}

    @pytest.fixture(scope="class")
    def twins(self, tmp_path_factory):
        return tiny_pair(tmp_path_factory.mktemp("gguf"), **self.kwargs)

    @pytest.fixture(scope="class")
    def engine(self, twins):
        type(self).twin = twins[1]
        return twins[0]

    def reference(self, engine, tokens):
        return plain_forward(self.twin, tokens)


@needs_llama
class TestQwen2(Twins):
    kwargs: ClassVar[dict] = dict(kind="qwen2")


@needs_llama
class TestLlama(Twins):
    kwargs: ClassVar[dict] = dict(kind="llama", seed=3, merges=True)

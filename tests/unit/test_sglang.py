"""The SGLang engine against a server that runs a tiny model, and what runs inside a real one against a stand-in."""

from __future__ import annotations

import pytest
from conformance import GREEDY, EngineConformance, plain_forward
from sglang_fake import serve
from tiny import tiny_engine

from semspec.engine import server
from semspec.engine.sglang import load as load_sglang


@pytest.fixture(scope="module")
def twin():
    return tiny_engine("llama", seed=4, merges=True)


@pytest.fixture(scope="module")
def folder(twin, tmp_path_factory):
    """What of the model the engine reads itself: tokenizer and configuration, no weights."""
    path = tmp_path_factory.mktemp("model")
    twin.tokenizer.save_pretrained(path)
    twin.model.config.save_pretrained(path)
    twin.model.generation_config.save_pretrained(path)
    return path


@pytest.fixture
def sglang(twin, folder):
    """(engine, fake server)"""
    with serve(twin) as (url, fake):
        yield load_sglang(folder, "tiny", url), fake


class TestEveryDistributionWhole(EngineConformance):
    """Where every token is among the likeliest that come over the wire, nothing is an estimate."""

    @pytest.fixture(scope="class")
    def engine(self, twin, folder):
        type(self).twin = twin
        with pytest.MonkeyPatch.context() as patch, serve(twin) as (url, _):
            patch.setattr(server, "TOP", len(twin.tokenizer))
            yield load_sglang(folder, "tiny", url)

    def reference(self, engine, tokens):
        return plain_forward(self.twin, tokens)

    # At a temperature the server draws with its own numbers, and exact verification with ours.
    @pytest.mark.parametrize("sampling", [GREEDY])
    def test_proposals_change_nothing(self, engine, sampling):
        super().test_proposals_change_nothing(engine, sampling)

    @pytest.mark.parametrize("sampling", [GREEDY])
    @pytest.mark.parametrize("right", [0, 3, 8])
    def test_rewriting_equals_rolling_back_and_writing(self, engine, sampling, right):
        super().test_rewriting_equals_rolling_back_and_writing(engine, sampling, right)


class TestAsItIsRun(EngineConformance):
    """With 64 tokens of each distribution. The states do not depend on them."""

    exact = False
    min_cosine = 0.999999

    @pytest.fixture(scope="class")
    def engine(self, twin, folder):
        type(self).twin = twin
        with serve(twin) as (url, _):
            yield load_sglang(folder, "tiny", url)

    def reference(self, engine, tokens):
        return plain_forward(self.twin, tokens)

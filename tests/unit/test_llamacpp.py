"""The llama.cpp engine passes the conformance suite against a Hugging Face model of the same weights."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
from conformance import GREEDY, WARM, EngineConformance, cosine, plain_forward
from fakes import ScriptedProbe
from tiny_gguf import tiny_pair, write_gguf

from semspec import config, decoding, schema
from semspec.engine import check, load
from semspec.engine.base import Segment, never, segment
from semspec.errors import UserError
from semspec.models import describe, ensure, gguf

REPO = Path(__file__).resolve().parents[2]
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


@needs_llama
class TestFp16Attention(Twins):
    """As it is run: the fp32 model differs by the cache alone."""

    exact = False
    min_cosine = 0.9999
    kwargs: ClassVar[dict] = dict(kind="qwen2", seed=5, fp32_attention=False)


@pytest.fixture(scope="module")
def twins(tmp_path_factory):
    """(llama.cpp, Hugging Face), the same fp32 model."""
    return tiny_pair(tmp_path_factory.mktemp("gguf"), kind="llama", seed=8)


@needs_llama
def test_the_context_is_that_of_the_model(twins):
    """The file says what the configuration says."""
    assert [engine.context for engine in twins] == [512, 512]


@needs_llama
def test_the_cache_grows_and_nothing_in_it_is_lost(tmp_path):
    """Texts that need more room than the cache had at first go on, and so do those that share a prompt."""
    from semspec.engine.llama import Llama
    from semspec.engine.llamacpp import LlamaCppEngine

    _, twin = tiny_pair(tmp_path, seed=9)
    engine = LlamaCppEngine(Llama(tmp_path / "tiny.gguf", "tiny", 1, 256, fp32_attention=True), twin.tokenizer, "t", [])
    suite = Twins()
    suite.twin = twin
    prompt = engine.encode("Question: how many tokens fit into a cache? " * 2)
    session = engine.session(prompt)
    first = session.generate(never, GREEDY, 20)
    out = engine.sample_many([prompt], 8, never, WARM, 24, seeds=[3])  # 8 times 24 tokens more
    for step in out[0]:
        suite.assert_matches(engine, prompt, step)
    again = session.read([Segment("And now?")])[0]
    suite.assert_matches(engine, [*prompt, *first.tokens], again)


@needs_llama
def test_a_cache_that_cannot_grow_stays_as_it_is(tmp_path, monkeypatch):
    """No memory for a larger one: a line, and the texts that there is room for go on."""
    from semspec.engine.llama import Llama
    from semspec.engine.llamacpp import LlamaCppEngine

    _, twin = tiny_pair(tmp_path, seed=9)
    engine = LlamaCppEngine(Llama(tmp_path / "tiny.gguf", "tiny", 1, 256, fp32_attention=True), twin.tokenizer, "t", [])
    suite = Twins()
    suite.twin = twin
    session = engine.session([1, 2, 3])
    with monkeypatch.context() as patch:
        patch.setattr(engine.llama._lib, "llama_init_from_model", lambda *_: None)
        with pytest.raises(UserError, match="can't open a cache of 512 tokens"):
            engine.session([5] * 300)
    suite.assert_matches(engine, [1, 2, 3], session.read([Segment("Still here?")])[0])
    assert engine.session([5] * 300).generate(never, GREEDY, 4).tokens  # now there is room


@needs_llama
def test_finished_texts_leave_the_cache(twins):
    """More texts than the cache has sequences, one after the other, find room."""
    engine, _ = twins
    for i in range(300):
        engine.session([i % 200, 1])
    before = len(engine.llama._free) + len(engine.llama._released)
    engine.sample_many([[1, 2], [3]], 100, never, WARM, 2, seeds=[1, 2])  # 200 rows: in two goes
    assert len(engine.llama._free) + len(engine.llama._released) == before - 2  # two prompts are kept


@needs_llama
def test_both_engines_have_the_same_words_and_draw_the_same_tokens(twins):
    """Ids, ends and prompts agree, and so does what is drawn for the same seed; a step is handed over as it is."""
    llama, twin = twins
    assert (llama.vocab_id, llama.eos_ids, llama.eos_id) == (twin.vocab_id, twin.eos_ids, twin.eos_id)
    prompt = llama.chat("2+2?", "Think.")
    assert prompt == twin.chat("2+2?", "Think.")
    ours, theirs = (engine.session(prompt).generate(never, WARM, 12) for engine in (llama, twin))
    assert ours.tokens == theirs.tokens
    assert segment(ours, llama, twin).tokens == ours.tokens
    for a, b in zip(*(e.sample_many([prompt], 5, never, WARM, 9, [4])[0] for e in (llama, twin)), strict=True):
        assert a.tokens == b.tokens
        assert cosine(a.pooled, b.pooled) > 0.999999


@needs_llama
@pytest.mark.parametrize("ours", ["draft", "target", "both"])
@pytest.mark.parametrize("name", list(decoding.METHODS))
def test_every_method_runs_and_engines_mix(name, ours, twins):
    """With the draft, the target or both on llama.cpp; greedy, the answer is the one of the other engine alone."""
    llama, twin = twins
    settings = config.load(REPO / "tests/defaults")
    settings = settings.model_copy(
        update={
            "bench": settings.bench.model_copy(update={"max_tokens": 24}),
            "text": settings.text.model_copy(update={"system": "Think.", "max_step_tokens": 8}),
            "decide": settings.decide.model_copy(update={"rule": "ratio", "threshold": 0.5}),
        }
    )

    def answer(draft, target):
        # one engine may play both roles here, so both probes read the same layers
        probes = {"draft": ScriptedProbe(1.0, layers=[0, 2]), "target": ScriptedProbe(0.1, 1.0, 0.1, layers=[0, 2])}
        probes |= {"semantic_last_hidden": dict(probes), "semantic_cross_domain": dict(probes)}
        return decoding.build(name, settings, draft, target, probes).answer("2+2?", seed=1)

    made = answer(twin if ours == "target" else llama, twin if ours == "draft" else llama)
    alone = answer(twin, twin)
    assert made.output_tokens > 0
    assert (made.text, [s.author for s in made.trace]) == (alone.text, [s.author for s in alone.trace])
    for engine in twins:
        engine.observe(None)


@needs_llama
def test_ctrl_c_in_the_middle_of_a_pass_is_not_swallowed(twins):
    """What is raised while llama.cpp runs comes out after the pass."""
    engine, _ = twins

    def interrupt(layer, states):
        raise KeyboardInterrupt

    sequence = engine.llama.acquire()
    with pytest.raises(KeyboardInterrupt):
        engine.llama.decode([1], [sequence], [0], np.ones(1, dtype=bool), [0], interrupt)
    engine.llama.release(sequence)


@needs_llama
def test_a_gguf_file_is_a_model_by_itself(tmp_path, twins):
    """Named by its path it is described, and run by llama.cpp alone; its own end of text is found."""
    _, twin = twins
    path = write_gguf(twin, tmp_path / "own.gguf")
    name = str(path)
    assert ensure(name) == gguf(name) == path
    assert describe(name) == describe(name) | {"name": "own.gguf", "source": "file"}
    with pytest.raises(UserError, match="set it to llamacpp"):
        check(name, schema.Engine())
    twin.tokenizer.save_pretrained(tmp_path)  # a tokenizer beside the file is taken before the file's own
    engine = load(name, schema.Engine(kind="llamacpp", threads=1))
    assert engine.eos_id == twin.eos_id and engine.vocab_id == twin.vocab_id


@needs_llama
def test_a_file_that_is_no_gguf_is_a_users_mistake(tmp_path):
    """One line says which file, and what llama.cpp says of it."""
    (tmp_path / "bad.gguf").write_bytes(b"not a model")
    with pytest.raises(UserError, match=r"can't be loaded by llama\.cpp"):
        load(str(tmp_path / "bad.gguf"), schema.Engine(kind="llamacpp", threads=1))


def test_without_the_library_the_line_says_what_to_install(monkeypatch):
    """Before anything is loaded."""
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(UserError, match=r"\.\[llamacpp\]"):
        check("smollm2-135m-instruct", schema.Engine(kind="llamacpp"))


def test_a_model_without_a_gguf_file_is_refused(monkeypatch):
    """A hub model or a folder of safetensors is no GGUF file."""
    monkeypatch.setattr("importlib.util.find_spec", lambda name: "there")
    for name in ("org/model", "synthetic-draft", "all-minilm-l6-v2"):
        with pytest.raises(UserError, match="has no GGUF file"):
            check(name, schema.Engine(kind="llamacpp"))


def test_a_role_has_what_is_its_own_and_shares_the_rest():
    """`engine.draft` and `engine.target` are laid over `engine`."""
    settings = schema.Engine(weights="bf16", threads=2, draft=schema.RoleEngine(kind="llamacpp", threads=1))
    draft, target = settings.of("draft"), settings.of("target")
    assert (draft.kind, draft.weights, draft.threads) == ("llamacpp", "bf16", 1)
    assert (target.kind, target.weights, target.threads) == ("transformers", "bf16", 2)
    assert draft.of("draft") == draft

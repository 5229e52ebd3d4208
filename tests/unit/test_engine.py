"""The Hugging Face engine passes the conformance suite, in every kind of weights, and draws tokens correctly."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from conformance import EngineConformance
from tiny import tiny_engine
from transformers import Qwen2ForCausalLM

from semspec.engine import prepacked
from semspec.engine.alone import FEW, NAME, one_text
from semspec.engine.base import Sampling, Segment, never
from semspec.engine.sampling import draw, score
from semspec.engine.transformers import context_of
from semspec.errors import UserError


class TestQwen2(EngineConformance):
    @pytest.fixture(scope="class")
    def engine(self):
        return tiny_engine("qwen2")


class TestLlama(EngineConformance):
    @pytest.fixture(scope="class")
    def engine(self):
        return tiny_engine("llama", seed=3, merges=True)


class TestEagerAttention(EngineConformance):
    """Attention written out, as models have it that PyTorch's own does not fit."""

    @pytest.fixture(scope="class")
    def engine(self):
        return tiny_engine("qwen2", seed=6, attention="eager")


class TestBf16(EngineConformance):
    exact = False
    min_cosine = 0.9995  # 64 random units; the real models are held to 0.9998 in tests/e2e

    @pytest.fixture(scope="class")
    def engine(self):
        return tiny_engine("llama", seed=1, weights="bf16")


@pytest.mark.skipif(not prepacked.wanted(), reason="this CPU computes bf16 in another way")
class TestPrepacked(TestBf16):
    """As CPUs with bf16 instructions run bf16."""

    @pytest.fixture(scope="class")
    def engine(self):
        return tiny_engine("llama", seed=1, weights="prepacked")


class TestInt8(EngineConformance):
    exact = False
    min_cosine = 0.97  # 8 bits for each weight and each activation, and only 64 of them to average over

    @pytest.fixture(scope="class")
    def engine(self):
        return tiny_engine("llama", seed=2, weights="int8")


@pytest.mark.parametrize("kind", ["qwen2", "llama"])
def test_int8_is_the_same_to_the_bit_whatever_is_read_at_once(kind):
    """What is verified a few tokens at a time is what the model writes by itself; a wider pass may round otherwise."""
    engine = tiny_engine(kind, seed=5, weights="int8")
    prompt = engine.encode("Question: what is 12 times 7? ")
    text = engine.session(prompt).generate(never, Sampling(), 3 * FEW).tokens

    def logits(width):
        session = engine.session(prompt)
        parts = [text[i : i + width] for i in range(0, len(text), width)]
        return torch.cat([session._feed(part, None, keep=len(part)) for part in parts])

    alone = logits(1)
    for width in (2, 5, FEW):
        assert torch.equal(logits(width), alone)
    assert not torch.equal(logits(len(text)), alone) and torch.allclose(logits(len(text)), alone, atol=0.5)


@pytest.mark.parametrize("threads", [1, 3, 5])
def test_an_activation_is_the_same_to_the_bit_whatever_is_read_at_once(threads):
    """Several threads share what is large, in parts that end in the middle of a token's numbers."""
    torch.set_num_threads(threads)
    model = tiny_engine("qwen2", weights="int8").model
    function = model.model.layers[0].layer.mlp.act_fn
    for size in (7000, 11000):
        x = torch.randn(1, FEW, 2 * size)[..., :size]
        own = torch.cat([function(row) for row in x.split(1, dim=1)], dim=1)
        with one_text():
            assert all(torch.equal(function(x[:, :n]), own[:, :n]) for n in range(2, FEW + 1))
        assert torch.allclose(function(x), own)


def test_only_models_that_ask_for_no_name_attend_row_by_row(monkeypatch):
    """Another would take the name for eager attention."""
    assert tiny_engine("qwen2", weights="int8").config._attn_implementation == NAME
    monkeypatch.setattr(Qwen2ForCausalLM, "_supports_attention_backend", False)
    assert tiny_engine("qwen2", weights="int8").config._attn_implementation == "sdpa"


@pytest.mark.parametrize(
    ("rope", "context"),
    [
        (None, 512),
        ({"rope_type": "default", "rope_theta": 1e4}, 512),
        ({"rope_type": "yarn", "factor": 4.0, "rope_theta": 1e4}, None),
        ({"full_attention": {"rope_type": "linear", "factor": 2.0}, "sliding_attention": {}}, None),
    ],
)
def test_the_context_is_what_the_configuration_says(rope, context):
    """Where the positions are stretched, the number in the configuration is not the model's limit."""
    assert context_of(SimpleNamespace(max_position_embeddings=512, rope_parameters=rope)) == context


class TestHalf(EngineConformance):
    """16-bit weights in fp32 arithmetic, as CPUs without bf16 run bf16."""

    @pytest.fixture(scope="class")
    def engine(self):
        return tiny_engine("qwen2", seed=4, weights="half")


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
class TestCudaFp32(EngineConformance):
    @pytest.fixture(scope="class")
    def engine(self):
        return tiny_engine("qwen2", device="cuda")


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
class TestCudaBf16(EngineConformance):
    exact = False
    min_cosine = 0.9995

    @pytest.fixture(scope="class")
    def engine(self):
        return tiny_engine("llama", seed=1, weights="bf16", device="cuda")


def test_generation_stops_at_eos_and_feeds_it():
    """EOS ends a step, belongs to its tokens, and is covered by the pooled state."""
    engine = tiny_engine("llama", seed=4)
    prompt = engine.encode("Go: ")
    first = engine.session(prompt).generate(never, Sampling(), 5)
    engine.eos_ids = frozenset({first.tokens[2]})
    step = engine.session(prompt).generate(never, Sampling(), 5)
    assert step.stop == "eos" and step.tokens == first.tokens[:3]
    EngineConformance().assert_matches(engine, prompt, step)


def test_the_token_behind_a_boundary_is_kept_for_the_next_step():
    """A token drawn as look-ahead opens the next step instead of being drawn a second time."""
    engine = tiny_engine("llama", seed=5)
    prompt = engine.encode("Say: ")
    seen: list[str] = []

    def ends(text: str, upcoming: str) -> bool:
        seen.append(upcoming)
        return len(text) >= 4

    session = engine.session(prompt)
    session.generate(ends, Sampling(temperature=1.0, seed=1), 10)
    following = session.generate(never, Sampling(temperature=1.0, seed=2), 3)
    assert following.text.startswith(seen[-1])


def test_nucleus_sampling_has_the_right_distribution():
    """Frequencies of drawn tokens match the truncated, renormalised softmax (chi-square below its 99.9% bound)."""
    logits = torch.tensor([[2.0, 1.0, 0.5, 0.0, -1.0, -3.0]])
    sampling = Sampling(temperature=0.8, top_p=0.9, top_k=5)
    p = torch.softmax(logits[0, :5] / 0.8, -1)
    p = torch.where(p.cumsum(0) - p < 0.9, p, 0.0)
    p = (p / p.sum()).numpy()
    n = 20_000
    uniforms = torch.tensor(np.random.default_rng(0).random(n), dtype=torch.float32)
    counts = np.bincount(draw(logits.expand(n, -1), sampling, uniforms).numpy(), minlength=6)
    assert counts[p.size :].sum() == 0 and counts[: p.size][p == 0].sum() == 0
    kept = p > 0
    chi2 = ((counts[:5][kept] - n * p[kept]) ** 2 / (n * p[kept])).sum()
    assert chi2 < 16.3  # 3 degrees of freedom


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_scores_are_those_of_exact_arithmetic(dtype):
    """Log-probability, entropy and the likeliest token's log-probability, against float64; no rows give no scores."""
    logits = (torch.randn(5, 50_000, generator=torch.Generator().manual_seed(0)) * 4 + 100).to(dtype)
    tokens = torch.tensor([0, 7, 49_999, 3, int(logits[4].argmax())])
    logp = torch.log_softmax(logits.double(), dim=-1)
    exact = logp.gather(1, tokens[:, None])[:, 0], -(logp.exp() * logp).sum(-1), logp.amax(-1)
    for found, true in zip(score(logits, tokens), exact, strict=True):
        assert found.dtype == torch.float32
        torch.testing.assert_close(found.double(), true, atol=2e-5, rtol=0)
    assert [len(x) for x in score(logits[:0], tokens[:0])] == [0, 0, 0]


def test_an_empty_segment_is_refused():
    """There is no state of no tokens."""
    with pytest.raises(ValueError, match="empty"):
        tiny_engine().session([1, 2]).read([Segment("")])


def test_layers_that_do_not_exist_are_a_users_mistake():
    """Asking for layer 99 of a 3-layer model says how many there are."""
    with pytest.raises(UserError, match="it has 3"):
        tiny_engine().observe([99])


def test_text_that_looks_like_a_special_token_is_plain_text():
    """A question that contains `<eos>` does not end anything."""
    engine = tiny_engine()
    assert engine.eos_id not in engine.encode("a<eos>b")


def test_a_turn_continues_the_conversation():
    """Prompt, answer and a new turn are the tokens of the whole conversation under the model's template."""
    engine = tiny_engine()
    engine.tokenizer.chat_template = (
        "{% for m in messages %}<{{ m.role }}>{{ m.content }}</>{% endfor %}"
        "{% if add_generation_prompt %}<assistant>{% endif %}"
    )
    tokens = engine.chat("2+2?", "be brief") + engine.encode("It is 4.") + engine.turn("Sure?", "Mark: ")
    said = "<system>be brief</><user>2+2?</><assistant>It is 4.</><user>Sure?</><assistant>Mark: "
    assert engine.decode(tokens) == said


@pytest.mark.parametrize("n", [5, 20])  # with AMX these are two kernels
def test_an_int8_layer_gives_each_token_its_own_scale(n):
    """The first token of a real prompt is hundreds of times larger than the rest, and must not cost them their bits."""
    from semspec.engine.int8 import Int8Linear

    generator = torch.Generator().manual_seed(0)
    linear = torch.nn.Linear(96, 40)
    rows = torch.randn(1, n, 96, generator=generator)
    rows[0, 0] *= 1000
    rows[0, 4] = 0
    with torch.no_grad():
        exact, layer = linear(rows), Int8Linear(linear)
        together = layer(rows)
        alone = torch.cat([layer(rows[:, i : i + 1]) for i in range(n)], dim=1)
    error = (together - exact).norm(dim=-1) / exact.norm(dim=-1)
    assert error.max() < 0.03
    assert torch.equal(together[0, 4], exact[0, 4])
    assert ((together - alone).norm(dim=-1) / exact.norm(dim=-1)).max() < 0.005
    assert linear(rows).equal(exact), "the original layer is left as it was"


@pytest.mark.parametrize("n", [1, 5, 20])
@pytest.mark.parametrize("sign", [1, -1])
def test_an_int8_layers_largest_sums_do_not_overflow(n, sign):
    """Every product as large as 8 bits make it: without VNNI instructions pairs of them are added in 16 bits."""
    from semspec.engine.int8 import Int8Linear

    linear = torch.nn.Linear(512, 8, bias=False)
    with torch.no_grad():
        linear.weight.fill_(float(sign))
        out = Int8Linear(linear)(torch.ones(1, n, 512))
    assert torch.allclose(out, torch.full_like(out, sign * 512.0), rtol=0.01)


def test_one_line_says_how_to_get_the_faster_engine(monkeypatch):
    from semspec import engine

    monkeypatch.setattr(engine.importlib.util, "find_spec", lambda name: None)
    monkeypatch.setattr(engine, "resolve", lambda *_: ("int8", "cpu"))
    assert "pip install -e '.[llamacpp]'" in engine.faster() and "\n" not in engine.faster()
    monkeypatch.setattr(engine, "resolve", lambda *_: ("bf16", "cuda"))
    assert engine.faster() == ""
    monkeypatch.undo()
    monkeypatch.setattr(engine.importlib.util, "find_spec", lambda name: object())
    assert engine.faster() == ""


def test_each_model_has_its_own_threads(tmp_path):
    """The number is PyTorch's for the whole process, and the model that was loaded last must not set it for both."""
    from project import save_tiny

    from semspec.engine.transformers import load

    before = torch.get_num_threads()
    try:
        one, two = (load(save_tiny(tmp_path / str(n)), "tiny", "fp32", "cpu", threads=n) for n in (1, 2))
        for engine, n in ((one, 1), (two, 2), (one, 1)):
            engine.session([1, 2])
            assert torch.get_num_threads() == n
    finally:
        torch.set_num_threads(before)


def test_without_the_kernels_of_int8_a_cpu_has_fp32(tmp_path, monkeypatch):
    """They are for x86 alone; who asks for int8 elsewhere is told before anything is loaded."""
    from semspec.engine import resolve
    from semspec.engine.transformers import load

    monkeypatch.setattr("semspec.engine.has_int8", lambda: True)
    assert resolve("auto", "cpu") == ("int8", "cpu")
    monkeypatch.setattr("semspec.engine.has_int8", lambda: False)
    monkeypatch.setattr("semspec.engine.transformers.has_int8", lambda: False)
    assert resolve("auto", "cpu") == ("fp32", "cpu")
    assert resolve("auto", "cuda:0") == ("bf16", "cuda:0")
    with pytest.raises(UserError, match=r"int8 needs PyTorch's FBGEMM.*set it to auto or bf16"):
        load(tmp_path, "tiny", "int8", "cpu")


def test_a_spoiled_model_says_what_to_do(tmp_path):
    """A file cut short, as a full disk or a kill leaves it: one line, and how to mend each kind of model."""
    from project import save_tiny

    from semspec.engine.transformers import load
    from semspec.models import TRAINED, mending

    weights = save_tiny(tmp_path / "model") / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-100])
    with pytest.raises(UserError, match=r"model 'mine' can't be loaded \(.*\); check its files"):
        load(tmp_path / "model", "mine", "fp32", threads=1)
    assert "semspec models pull" in mending("smollm2-135m-instruct")
    assert all("semspec stage models" in mending(name) for name in TRAINED)

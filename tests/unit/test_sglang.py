"""The SGLang engine against a server that runs a tiny model, and what runs inside a real one against a stand-in."""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from itertools import pairwise

import numpy as np
import pytest
import torch
from conformance import GREEDY, EngineConformance, plain_forward
from fakes import blank_line
from sglang_fake import serve
from tiny import tiny_engine

from semspec import schema
from semspec.engine import check, number_format, server
from semspec.engine import load as load_engine
from semspec.engine.base import Sampling, Segment, never
from semspec.engine.sglang import SglangEngine
from semspec.engine.sglang import load as load_sglang
from semspec.errors import UserError
from semspec.sglang_server.pooling import Pooling
from semspec.sglang_server.protocol import Wish, request_id, unpack, wish_of


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


def test_a_step_is_streamed_ended_where_it_ends_and_read_when_it_is_looked_at(sglang):
    """The stream is aborted behind the step, the token drawn behind it starts the next one, and one pass reads it."""
    engine, fake = sglang
    session = engine.session(engine.encode("Question: 2+2?"))
    fake.asked.clear()
    whole = engine.write(session.tokens, None, never, GREEDY, 12, 0).tokens
    fake.asked.clear()
    fake.aborted.clear()
    first = session.generate(lambda text, up: len(text) >= 4, GREEDY, 12)
    before = len(session.tokens) - len(first.tokens)
    assert first.stop == "step" and [b.get("stream", False) for b in fake.asked] == [True]
    assert fake.aborted == [fake.asked[0]["rid"]]
    second = session.generate(never, GREEDY, 12 - len(first.tokens))
    assert fake.asked[1]["input_ids"] == [*session.tokens[: -len(second.tokens)], second.tokens[0]]
    assert first.scores.logprob.max() < 0 and first.pooled.shape == (3, 64)
    assert [b["logprob_start_len"] for b in fake.asked[2:]] == [[before - 1]]
    assert first.tokens + second.tokens == whole and len(fake.aborted) == 1
    assert (second.stop, second.passes) == ("length", len(second.tokens))


def test_an_end_that_is_drawn_already_ends_the_step(sglang):
    """Nothing is asked of the server behind it."""
    engine, fake = sglang
    fake.asked.clear()
    made = engine.write([1, 2], engine.eos_id, never, GREEDY, 5, 0)
    assert made == ([engine.eos_id], "", "eos", None) and not fake.asked


def test_a_server_that_answers_in_another_way_is_named_in_one_line(folder):
    """A web page where an address was mistyped."""

    class Page(BaseHTTPRequestHandler):
        said = b"<html>\nhello</html>"

        def do_GET(self):
            self.send_response(200)
            self.end_headers()
            self.wfile.write(self.said)

        def log_message(self, *args):
            pass

    web = HTTPServer(("127.0.0.1", 0), Page)
    threading.Thread(target=web.serve_forever, daemon=True).start()
    try:
        with pytest.raises(UserError, match=r"not as SGLang does \(<html> hello</html>\); correct engine.ROLE.url"):
            load_sglang(folder, "tiny", f"http://127.0.0.1:{web.server_port}")
        for Page.said in (b"{}", b"[1]"):
            with pytest.raises(UserError, match=r"not as SGLang does; correct engine.ROLE.url"):
                load_sglang(folder, "tiny", f"http://127.0.0.1:{web.server_port}")
    finally:
        web.shutdown()
        web.server_close()


def test_sampling_says_what_it_may(sglang):
    """Temperature, nucleus and a seed of its own for each continuation; greedy says no more than that."""
    engine, fake = sglang
    prompt = engine.encode("Hi")
    engine.sample_many([prompt, prompt], 2, never, Sampling(0.7, 0.9, 20), 3, seeds=[1, 2])
    said = [b["sampling_params"] for b in fake.asked if b.get("stream")]
    assert {(p["temperature"], p["top_p"], p["top_k"], p["max_new_tokens"]) for p in said} == {(0.7, 0.9, 20, 3)}
    assert len({p["sampling_seed"] for p in said}) == 4 and all(0 <= p["sampling_seed"] < 2**63 for p in said)
    fake.asked.clear()
    engine.session(prompt).generate(blank_line, GREEDY, 3)
    said = next(b["sampling_params"] for b in fake.asked if b.get("stream"))
    assert said == {"temperature": 0, "max_new_tokens": 3, "stop_token_ids": sorted(engine.eos_ids)}


@pytest.mark.parametrize(("fall", "off"), [(1.2, 0.2), (1.5, 1e-4), (2.0, 0.1)])
@pytest.mark.parametrize("known", [64, 5000])
def test_entropies_are_estimated_from_the_likeliest_tokens(fall, off, known):
    """Exact where all is known or falls off as assumed; near where it falls off somewhat differently."""
    logp = np.log(np.arange(1, 5001) ** -fall)
    logp -= np.log(np.exp(logp).sum())
    rows = np.tile(logp[:known].astype(np.float32), (2, 1))
    given, entropy, top = server.Reading(np.zeros((2, known)), rows, rows[:1, 3], np.empty(0)).scores(5000)
    assert (given[0], top[0]) == (rows[0, 3], rows[0, 0])
    assert entropy[0] == pytest.approx(-(np.exp(logp) * logp).sum(), abs=off if known < 5000 else 1e-4)


def test_no_layers_is_an_answer_too(sglang):
    """A predictor may look at log-probabilities alone."""
    engine, _ = sglang
    engine.observe([])
    assert engine.session([1, 2]).read([Segment("no")])[0].pooled.shape == (0, engine.hidden_size)


def test_a_server_that_is_not_there_is_a_users_mistake(folder):
    """One line with the address."""
    with pytest.raises(UserError, match=r"no SGLang server answers at http://127.0.0.1:9 .*docs/engines.md"):
        load_sglang(folder, "tiny", "http://127.0.0.1:9")


def test_what_the_server_refuses_comes_out_in_one_line(sglang):
    """Its own message, line breaks taken out; and a text that it cuts short is no step."""
    engine, _ = sglang
    session = engine.session(engine.encode("x" * 395))
    with pytest.raises(UserError, match=r"ended a text .* after 5 of 20 tokens.*--context-length"):
        session.generate(never, GREEDY, 20)
    with pytest.raises(UserError, match=r"refused a request: The input is longer than the model's context length$"):
        session.read([Segment("y" * 20)])


def test_states_that_are_missing_or_miscounted_are_refused(twin, folder):
    """A server that was not started as it must be is noticed before any work is done."""
    with serve(twin) as (url, fake):
        fake.sabotage = lambda found: found.pop("semspec", None)
        with pytest.raises(UserError, match="pooled nothing of"):
            load_sglang(folder, "tiny", url)

        def overrun(found):
            if "semspec" in found:
                found["semspec"][0]["counts"][-1] += 1

        fake.sabotage = overrun
        with pytest.raises(UserError, match=r"pooled \[\d+\] of \[\d+\] tokens"):
            load_sglang(folder, "tiny", url)


def test_a_server_of_another_model_is_refused(twin, folder, tmp_path):
    """The states' size tells; the line names the model that it runs."""
    config = twin.model.config.to_dict() | {"hidden_size": 32}
    twin.tokenizer.save_pretrained(tmp_path)
    type(twin.model.config).from_dict(config).save_pretrained(tmp_path)
    with serve(twin) as (url, _), pytest.raises(UserError, match=r"it runs another model \(/models/tiny\)"):
        load_sglang(tmp_path, "tiny", url)


def test_settings_name_a_server_for_each_role():
    """The addresses that docker/compose.yaml publishes, unless others are set; no path, since SGLang has its own."""
    settings = schema.Engine(kind="sglang", target=schema.RoleEngine(url="http://gpu-box:30000"))
    assert settings.of("target").url == "http://gpu-box:30000"
    assert settings.of("draft").url == "http://127.0.0.1:30001"
    assert schema.Engine().of("target").url == "http://127.0.0.1:30000"
    assert number_format(settings.of("draft")) == "sglang"
    for wrong in ("http://127.0.0.1:30000/v1", "http://me:secret@gpu-box:30000"):
        with pytest.raises(ValueError, match="pattern"):
            schema.Engine(url=wrong)
    with pytest.raises(UserError, match=r"engine\.kind sglang does not load"):
        check("./some.gguf", settings)


def test_the_door_fetches_no_weights(twin, folder):
    """`engine.load` with `kind: sglang` takes a folder of tokenizer and configuration."""
    assert not list(folder.glob("*.safetensors"))
    with serve(twin) as (url, _):
        engine = load_engine(str(folder), schema.Engine(kind="sglang", url=url).of("target"))
    assert isinstance(engine, SglangEngine) and (engine.n_layers, engine.eos_ids) == (3, twin.eos_ids)


# --- inside the server


class Layer(torch.nn.Module):
    """As SGLang's: what it returns lacks the residual, which the next layer adds and shows."""

    def __init__(self, stream):
        super().__init__()
        self.stream, self.inner = stream, torch.nn.Linear(8, 8)

    def forward(self, states, capture_output=None):
        self.stream["residual"] = self.stream["residual"] + states
        if capture_output:
            capture_output(self.stream["residual"])
        return self.inner(self.stream["residual"])


class Norm(torch.nn.Module):
    def forward(self, states, residual):
        return states * 0, states + residual


class Stub:
    """Three layers and a final norm. `run` gives each layer's true output `[layers, tokens, 8]`."""

    def __init__(self):
        torch.manual_seed(0)
        self.stream = {}
        self.layers = [Layer(self.stream) for _ in range(3)]
        self.norm = Norm()

    def run(self, tokens):
        self.stream["residual"] = torch.zeros(len(tokens), 8)
        states, true = torch.tensor(tokens).float()[:, None].expand(-1, 8).sin(), []
        for layer in self.layers:
            states = layer(states)
            true.append(states + self.stream["residual"])
        self.norm(states, self.stream["residual"])
        return torch.stack(true)


def test_a_wish_survives_its_way_through_a_request_id():
    """Whatever the bounds and layers; other requests wish for nothing, and no two ids are equal."""
    for wish in (Wish((3, 5, 9), (0, 2)), Wish((0, 1), ()), Wish((7, 8), tuple(range(64)))):
        assert wish_of(request_id(wish)) == wish
    assert wish_of("HEALTH_CHECK_1") is None and wish_of("cmpl:1:2") is None
    assert request_id(wish) != request_id(wish)


@torch.no_grad()
def test_pooling_sums_each_segment_over_chunks_of_several_requests():
    """The layers' outputs with their residuals, over a text that is read in parts beside others, and counts exact."""
    stub = Stub()
    pooling = Pooling(stub.layers, stub.norm)
    one, other = list(range(10)), list(range(50, 54))
    wished, also = request_id(Wish((2, 4, 9), (2, 0))), request_id(Wish((1, 4), (1,)))
    with pooling.over([wished, "someone's", also], [0, 5, 0], [5, 2, 4], "cpu"):
        stub.run([*one[:5], 90, 91, *other])
    with pooling.over(["someone's", wished], [7, 5], [1, 5], "cpu"):
        stub.run([92, *one[5:]])
    with pooling.over(["someone's"], [8], [1], "cpu"):
        stub.run([93])
    for name, tokens, wish in ((wished, one, wish_of(wished)), (also, other, wish_of(also))):
        counts, shape, data = unpack(pooling.take(name))
        true = stub.run(tokens)[list(wish.layers)]
        means = torch.stack([true[:, a:b].mean(1) for a, b in pairwise(wish.bounds)])
        assert counts == [b - a for a, b in pairwise(wish.bounds)]
        np.testing.assert_allclose(np.frombuffer(data, "<f4").reshape(shape), means.numpy(), atol=1e-6)
        assert pooling.take(name) is None
    assert pooling.take("someone's") is None


@torch.no_grad()
def test_a_request_that_is_put_back_is_counted_once():
    """SGLang may drop a request that it has begun to read, and read it again."""
    stub = Stub()
    pooling = Pooling(stub.layers, stub.norm)
    name = request_id(Wish((1, 3), (0, 1, 2)))
    for _ in range(2):
        with pooling.over([name], [1], [3], "cpu"):
            stub.run([5, 6, 7])
    assert unpack(pooling.take(name))[0] == [2]


@torch.no_grad()
def test_pooling_notices_layers_that_show_nothing():
    """Where a release of SGLang has moved its residual, no wrong states come out."""
    stub = Stub()
    pooling = Pooling(stub.layers, stub.norm)
    name = request_id(Wish((0, 1), (0,)))
    with pytest.raises(RuntimeError, match="1 of 3 layers"), pooling.over([name], [0], [1], "cpu"):
        stub.norm(torch.zeros(1, 8), torch.zeros(1, 8))

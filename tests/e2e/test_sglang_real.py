"""The SGLang engine on a real server: the conformance suite, held against the Hugging Face model of the same weights.

SEMSPEC_SGLANG_URL     the server's address; http://127.0.0.1:30000 if not set
SEMSPEC_SGLANG_MODEL   what it runs; smollm2-135m-instruct if not set, as docker/sglang/cpu.sh does
SEMSPEC_SGLANG_DEVICE  where the Hugging Face model runs; cpu if not set
SEMSPEC_SGLANG_WEIGHTS its number format; fp32 if not set, since two models in bf16 are further from each other
"""

from __future__ import annotations

import os

import httpx
import numpy as np
import pytest
from conformance import GREEDY, PROMPTS, WARM, EngineConformance, cosine, plain_forward

from semspec.engine import load as load_engine
from semspec.engine.base import Segment, never
from semspec.engine.transformers import load
from semspec.models import ensure
from semspec.schema import Engine as EngineSettings

URL = os.environ.get("SEMSPEC_SGLANG_URL", "http://127.0.0.1:30000")
NAME = os.environ.get("SEMSPEC_SGLANG_MODEL", "smollm2-135m-instruct")
DEVICE = os.environ.get("SEMSPEC_SGLANG_DEVICE", "cpu")
WEIGHTS = os.environ.get("SEMSPEC_SGLANG_WEIGHTS", "fp32")


@pytest.fixture(scope="module", autouse=True)
def server_info():
    """What the server says of itself."""
    try:
        return httpx.get(f"{URL}/server_info", timeout=10, trust_env=False).json()
    except httpx.HTTPError:
        pytest.skip(f"no SGLang server at {URL}: start one (docker/sglang/cpu.sh) or set SEMSPEC_SGLANG_URL")


@pytest.mark.sglang
class TestSglang(EngineConformance):
    """Counts are exact; states differ by the server's rounding."""

    exact = False
    min_cosine = 0.9995  # measured .99986 for a single token, .99995 for steps (Hugging Face's bf16: .99974, .99996)

    @pytest.fixture(scope="class")
    def engine(self):
        type(self).twin = load(ensure(NAME), NAME, weights=WEIGHTS, device=DEVICE)
        return load_engine(NAME, EngineSettings(kind="sglang", url=URL).of("target"))

    def reference(self, engine, tokens):
        return plain_forward(self.twin, tokens)

    def test_a_sample_depends_on_its_seed_alone(self, engine, server_info):
        if not server_info.get("enable_deterministic_inference"):
            pytest.skip("the server was started without --enable-deterministic-inference, which a CPU does not have")
        super().test_a_sample_depends_on_its_seed_alone(engine)

    def assert_greedy(self, engine, prompt, tokens):
        """Each token is the likeliest, or within rounding of it: a bf16 logit above 16 moves in steps of 1/8."""
        scores = engine.session(prompt).read([Segment("", tokens=tokens)])[0].scores
        assert (scores.top - scores.logprob).max() <= 0.25

    def test_step_by_step_equals_one_go(self, engine):
        """Both are greedy; the same text is too much to ask where passes of other sizes round otherwise."""
        prompt = self.prompt(engine, 1)
        session, tokens = engine.session(prompt), []
        while len(tokens) < 24:
            step = session.generate(lambda text, up: len(text) % 3 == 0, GREEDY, 24 - len(tokens))
            tokens += step.tokens
            if step.eos:
                break
        self.assert_greedy(engine, prompt, tokens)
        self.assert_greedy(engine, prompt, engine.session(prompt).generate(never, GREEDY, 24).tokens)

    def test_rollback_then_generate_equals_generate_afresh(self, engine):
        """Greedy decoding after a rolled-back read goes on as if nothing had been read."""
        prompt = self.prompt(engine)
        session = engine.session(prompt)
        session.read([Segment("junk junk")])
        session.rollback(len(session.tokens) - len(prompt))
        step = session.generate(never, GREEDY, 8)
        self.assert_greedy(engine, prompt, step.tokens)
        self.assert_matches(engine, prompt, step)

    def test_scores_are_those_of_the_other_engine(self, engine):
        """Log-probabilities and likeliest ones within bf16's rounding; entropies are estimates."""
        prompt = engine.encode(PROMPTS[1])
        text = Segment("17 + 5 = 22, and doubled that is 44.")
        ours, theirs = (e.session(prompt).read([text])[0].scores for e in (engine, self.twin))
        print(
            *(f"{n} {np.abs(a - b).max():.4f}" for n, a, b in zip(ours._fields[:3], ours, theirs, strict=False)),
            f"lowest cosine {cosine(*(e.session(prompt).read([text])[0].pooled for e in (engine, self.twin))):.6f}",
        )
        np.testing.assert_allclose(ours.logprob, theirs.logprob, atol=0.25)
        np.testing.assert_allclose(ours.top, theirs.top, atol=0.25)
        assert np.abs(ours.entropy - theirs.entropy).mean() < 0.25

    def test_the_prefix_is_not_computed_again(self, engine):
        """A read behind a long prompt computes its own tokens and the one in front of them alone."""
        prompt = engine.encode("A long prompt about nothing in particular. " * 20)
        session = engine.session(prompt)
        session.generate(never, GREEDY, 4)
        body = {
            "input_ids": [session.tokens],
            "sampling_params": {"max_new_tokens": 1, "temperature": 0},
            "return_logprob": True,
            "logprob_start_len": [len(prompt) - 1],
        }
        (answer,) = httpx.post(f"{URL}/generate", json=body, timeout=60, trust_env=False).json()
        assert answer["meta_info"]["cached_tokens"] == len(prompt) - 1

    def test_sampled_continuations_differ(self, engine):
        """The server's sampler is asked for a temperature, and heeds it."""
        (row,) = engine.sample_many([engine.encode(PROMPTS[0])], 4, never, WARM, 12, seeds=[1])
        assert len({tuple(s.tokens) for s in row}) > 1

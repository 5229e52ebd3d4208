"""What every engine must do. Subclass `EngineConformance`, give an `engine` fixture and a `reference`, and run.

`reference(engine, tokens)` is an independent plain forward pass over the whole text: hidden states `[layers, tokens,
hidden]` (each decoder layer's output) and logits `[tokens, vocab]`, as float64-able tensors.
"""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
import torch

from semspec.engine.base import Proposal, Sampling, Segment, never

GREEDY = Sampling()
WARM = Sampling(temperature=0.9, top_p=0.95)
PROMPTS = ["Question: 2+2?", "Add 17 to 5, then double it. Answer:", "Hi"]


def plain_forward(engine, tokens):
    """Reference for engines that hold a transformers model: one uncached pass, hooks on the decoder layers."""
    from semspec.engine.transformers import decoder_layers

    states: list[torch.Tensor] = []

    def keep(module, args, output):
        states.append((output[0] if isinstance(output, tuple) else output)[0].float().cpu())

    hooks = [layer.register_forward_hook(keep) for layer in decoder_layers(engine.model, engine.n_layers)]
    ids = torch.tensor([tokens], device=engine.device)
    with torch.inference_mode():
        logits = engine.model(input_ids=ids, use_cache=False).logits[0].float().cpu()
    for hook in hooks:
        hook.remove()
    return torch.stack(states), logits


def cosine(a, b) -> float:
    """The lowest cosine over layers of two `[layers, hidden]` arrays."""
    a, b = np.asarray(a, dtype=np.float64), np.asarray(b, dtype=np.float64)
    return float(((a * b).sum(1) / (np.linalg.norm(a, axis=1) * np.linalg.norm(b, axis=1))).min())


class EngineConformance:
    """Tolerance: `exact` engines are compared entry by entry, others by the lowest cosine of a layer."""

    exact = True
    min_cosine = 0.9998

    @pytest.fixture
    def engine(self):
        raise AssertionError("a conformance class gives its own `engine` fixture")

    def reference(self, engine, tokens):
        return plain_forward(engine, tokens)

    def assert_matches(self, engine, prompt, step, layers=None):
        """Counts exact; pooled states and log-probabilities those of a plain pass over prompt + step."""
        states, logits = self.reference(engine, [*prompt, *step.tokens])
        pooled = states[:, len(prompt) :].mean(1).numpy()
        if layers is not None:
            pooled = pooled[layers]
        logp = torch.log_softmax(logits[len(prompt) - 1 : -1], dim=-1)
        picked = logp[torch.arange(len(step.tokens)), torch.tensor(step.tokens)].numpy()
        entropy = -(logp.exp() * logp).sum(-1).numpy()
        assert states.shape[1] == len(prompt) + len(step.tokens)
        assert {len(column) for column in step.scores} == {len(step.tokens)}
        assert step.pooled.shape == pooled.shape and step.pooled.dtype == np.float32
        if self.exact:
            np.testing.assert_allclose(step.pooled, pooled, rtol=1e-3, atol=2e-4)
            np.testing.assert_allclose(step.scores.logprob, picked, rtol=1e-3, atol=1e-3)
            np.testing.assert_allclose(step.scores.entropy, entropy, rtol=1e-3, atol=1e-3)
            np.testing.assert_allclose(step.scores.top, logp.amax(-1).numpy(), rtol=1e-3, atol=1e-3)
        digits = [any(c in "0123456789" for c in engine.decode([t])) for t in step.tokens]
        assert step.scores.number.tolist() == digits
        assert cosine(step.pooled, pooled) >= self.min_cosine

    def prompt(self, engine, i=0):
        return engine.encode(PROMPTS[i])

    def test_generated_states_equal_a_plain_pass(self, engine):
        """A generated step's pooled states cover all of its tokens, the last one included."""
        prompt = self.prompt(engine)
        session = engine.session(prompt)
        for limit in (1, 7):
            before = list(session.tokens)
            step = session.generate(never, GREEDY, limit)
            assert session.tokens == [*before, *step.tokens]
            self.assert_matches(engine, before, step)

    def test_read_states_equal_a_plain_pass(self, engine):
        """Several segments read in one pass each have the states of a plain pass over the text up to them."""
        prompt = self.prompt(engine)
        session = engine.session(prompt)
        steps = session.read([Segment("The sum is 4. "), Segment("x"), Segment("So 44.", eos=True)])
        before = list(prompt)
        for step in steps:
            self.assert_matches(engine, before, step)
            before += step.tokens
        assert session.tokens == before
        assert [s.eos for s in steps] == [False, False, True]

    def test_passes_are_counted_by_width(self, engine):
        """A token written is a pass of width 1, segments read together are one pass."""
        session = engine.session(self.prompt(engine))
        before = engine.passes.copy()
        written = session.generate(never, GREEDY, 5)
        read = session.read([Segment("The sum is 4. "), Segment("So 44.")])
        passes = engine.passes - before
        assert passes[1] == len(written.tokens) and passes[sum(len(s.tokens) for s in read)] == 1
        assert passes.total() == len(written.tokens) + 1

    def test_text_that_follows_is_as_if_read(self, engine):
        """Several segments in one pass, behind a rollback too: what comes next is what a reading model would write."""
        prompt = self.prompt(engine)
        session, reader = engine.session(prompt), engine.session(prompt)
        session.read([Segment("junk junk")])
        session.rollback(2)
        dropped = list(session.tokens[len(prompt) :])
        before = engine.passes.copy()
        session.follow([Segment("The sum is 4. "), Segment("So")])
        width = len(session.tokens) - len(prompt) - len(dropped)
        assert engine.passes - before == Counter({width: 1})
        reader.read([Segment("", tokens=session.tokens[len(prompt) :])])
        assert session.tokens == reader.tokens
        with pytest.raises(ValueError, match="rewritten"):
            session.rewrite(1, never, GREEDY, 8)
        assert session.generate(never, GREEDY, 8).tokens == reader.generate(never, GREEDY, 8).tokens
        with pytest.raises(ValueError, match="empty"):
            session.follow([Segment("")])

    def test_rollback_then_read_equals_read_afresh(self, engine):
        """Nothing of a forgotten step remains, at any boundary and inside a step."""
        prompt = self.prompt(engine, 1)
        session = engine.session(prompt)
        first = session.generate(never, GREEDY, 6)
        wrong = session.read([Segment("This is a wrong turn. "), Segment("And another. ")])
        session.rollback(len(wrong[1].tokens) + len(wrong[0].tokens) + 3)  # 3 tokens into the first step
        assert session.tokens == [*prompt, *first.tokens[:3]]
        again = session.read([Segment("Double 22 is 44.")])[0]
        self.assert_matches(engine, [*prompt, *first.tokens[:3]], again)

    def test_rollback_then_generate_equals_generate_afresh(self, engine):
        """Greedy decoding after a rolled-back read goes on as if nothing had been read."""
        prompt = self.prompt(engine)
        session = engine.session(prompt)
        session.read([Segment("junk junk")])
        session.rollback(len(session.tokens) - len(prompt))
        step = session.generate(never, GREEDY, 8)
        fresh = engine.session(prompt).generate(never, GREEDY, 8)
        assert step.tokens == fresh.tokens
        self.assert_matches(engine, prompt, step)

    @pytest.mark.parametrize("sampling", [GREEDY, WARM], ids=["greedy", "sampled"])
    def test_proposals_change_nothing(self, engine, sampling):
        """Right, half right and wrong proposals, and too many of them, leave the text that the model writes alone."""
        prompt = self.prompt(engine)
        plain = engine.session(prompt).generate(never, sampling, 10)
        wrong = plain.tokens[::-1]
        for guess in (plain.tokens, plain.tokens[:3] + wrong, wrong):
            session = engine.session(prompt)
            step = session.generate(never, sampling, 10, lambda answer, g=guess: Proposal(g[len(answer) :]))
            if self.exact:
                assert step.tokens == plain.tokens and session.tokens == [*prompt, *plain.tokens]
                np.testing.assert_allclose(step.scores.logprob, plain.scores.logprob, rtol=1e-3, atol=1e-3)
            assert step.kept <= step.offered and step.passes + step.kept == len(step.tokens)
            again = session.read([Segment("And now?")])[0]
            self.assert_matches(engine, [*prompt, *step.tokens], again)
        assert step.offered > 0

    @pytest.mark.parametrize("sampling", [GREEDY, WARM], ids=["greedy", "sampled"])
    @pytest.mark.parametrize("right", [0, 3, 8])
    def test_rewriting_equals_rolling_back_and_writing(self, engine, sampling, right):
        """A read text that is right in its first tokens is replaced by what the model writes by itself."""
        prompt = self.prompt(engine, 1)
        plain = engine.session(prompt).generate(never, sampling, 8)
        read = plain.tokens[:right] + engine.encode("zq9!zq9!")[: 8 - right]
        session = engine.session(prompt)
        session.read([Segment("", tokens=read)])
        step = session.rewrite(len(read), never, sampling, 8)
        if self.exact:
            assert step.tokens == plain.tokens and session.tokens == [*prompt, *plain.tokens]
            assert step.kept >= min(right, len(plain.tokens)) and step.passes == len(step.tokens) - step.kept
        again = session.read([Segment("And now?")])[0]
        self.assert_matches(engine, [*prompt, *step.tokens], again)
        with pytest.raises(ValueError, match="rewritten"):
            session.rewrite(len(again.tokens) + 1, never, sampling, 8)

    def test_drawing_gives_the_distribution_it_drew_from(self, engine):
        """Each drawn token is possible under its own distribution; the last one is not in the cache."""
        session = engine.session(self.prompt(engine))
        before = list(session.tokens)
        made = session.draw(4, WARM)
        assert session.tokens == [*before, *made.tokens[:-1]]
        np.testing.assert_allclose(made.probs.sum(1), 1, rtol=1e-4)
        for token, ids, probs in zip(made.tokens, made.ids, made.probs, strict=True):
            assert probs[ids == token] > 0
        assert session.draw(2, GREEDY).ids is None

    def test_rollback_never_loses_the_prompt(self, engine):
        """Rolling back into the prompt is refused."""
        session = engine.session(self.prompt(engine))
        session.generate(never, GREEDY, 2)
        with pytest.raises(ValueError, match="prompt"):
            session.rollback(3)

    def test_step_by_step_equals_one_go(self, engine):
        """Stopping at steps and going on writes the same greedy text as not stopping."""
        prompt = self.prompt(engine, 1)
        whole = engine.session(prompt).generate(never, GREEDY, 24)
        session, tokens = engine.session(prompt), []
        while len(tokens) < len(whole.tokens):
            every_third = session.generate(lambda text, up: len(text) % 3 == 0, GREEDY, 24 - len(tokens))
            tokens += every_third.tokens
        assert tokens == whole.tokens

    def test_sampled_batch_states_equal_a_plain_pass(self, engine):
        """Samples of prompts of different lengths, finished at different times, each match a plain pass."""
        prompts = [self.prompt(engine, i) for i in range(3)]
        ends = lambda text, up: len(text) > 2 and text[-1] in "aeiou "  # noqa: E731
        out = engine.sample_many(prompts, 4, ends, WARM, 12, seeds=[5, 6, 7])
        assert [len(r) for r in out] == [4, 4, 4]
        lengths = {len(s.tokens) for row in out for s in row}
        assert len(lengths) > 1, "rows should finish at different times"
        for prompt, row in zip(prompts, out, strict=True):
            for step in row:
                assert step.stop in ("step", "eos", "length")
                self.assert_matches(engine, prompt, step)

    def test_a_sample_depends_on_its_seed_alone(self, engine):
        """The same seeds give the same samples; a sample does not depend on how many are drawn beside it."""
        prompts = [self.prompt(engine, 0), self.prompt(engine, 1)]
        a = engine.sample_many(prompts, 3, never, WARM, 8, seeds=[1, 2])
        b = engine.sample_many(prompts, 3, never, WARM, 8, seeds=[1, 2])
        assert [s.tokens for r in a for s in r] == [s.tokens for r in b for s in r]
        assert a[0][0].tokens != a[0][1].tokens or a[0][1].tokens != a[0][2].tokens
        if self.exact:
            alone = engine.sample_many(prompts[1:], 2, never, WARM, 8, seeds=[2])
            assert [s.tokens for s in alone[0]] == [s.tokens for s in a[1][:2]]

    def test_alternatives_read_in_a_batch_equal_a_plain_pass(self, engine):
        """Texts of different lengths read as alternatives do not see each other."""
        prompts = [self.prompt(engine, 0), self.prompt(engine, 2)]
        texts = [["4", "The answer is 4.", "It is four, since 2+2=4."], ["no", "a"]]
        out = engine.read_many(prompts, [[Segment(t, eos=t == "no") for t in row] for row in texts])
        for prompt, row, wanted in zip(prompts, out, texts, strict=True):
            assert [s.text for s in row] == wanted
            for step in row:
                self.assert_matches(engine, prompt, step)

    def test_reading_what_was_written_gives_the_same_states(self, engine):
        """A step has the same pooled states and log-probabilities whether the model wrote it or reads it."""
        prompt = self.prompt(engine)
        wrote = engine.session(prompt).generate(never, WARM, 9)
        read = engine.session(prompt).read([Segment(wrote.text, tokens=wrote.tokens)])[0]
        assert read.tokens == wrote.tokens
        assert cosine(read.pooled, wrote.pooled) >= self.min_cosine
        if self.exact:
            np.testing.assert_allclose(read.statistics, wrote.statistics, rtol=1e-3, atol=1e-3)

    def test_only_the_layers_asked_for_are_pooled(self, engine):
        """`observe` chooses rows of the pooled state and their order."""
        prompt = self.prompt(engine)
        engine.observe([engine.n_layers - 1, 0])
        try:
            step = engine.session(prompt).generate(never, GREEDY, 5)
        finally:
            engine.observe(None)
        assert step.pooled.shape[0] == 2
        self.assert_matches(engine, prompt, step, layers=[engine.n_layers - 1, 0])

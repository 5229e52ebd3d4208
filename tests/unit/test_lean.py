"""Decoder layers in fewer steps: the same numbers, to the last bit."""

from __future__ import annotations

import pytest
import torch
from tiny import tiny_engine

from semspec.engine import prepacked
from semspec.engine.base import Sampling, Segment, never
from semspec.engine.lean import LeanLayer, make_lean
from semspec.engine.transformers import decoder_layers

bf16_here = pytest.mark.skipif(not prepacked.wanted(), reason="this CPU computes bf16 in another way")
FORMATS = ["int8", "half", pytest.param("prepacked", marks=bf16_here)]


def everything(engine):
    """What comes of passes of every kind: [tensor or array], and the tokens that were sampled."""
    engine.eos_ids = frozenset()
    prompt = engine.encode("Question: what is 12 times 7? ")
    written = engine.session(prompt).generate(never, Sampling(), 30)
    text, numbers = written.tokens, [written.pooled]
    for width in (1, 5, 30):
        reader, judge = engine.session(prompt), engine.session(prompt)
        for i in range(0, 30, width):
            part = text[i : i + width]
            numbers += [reader._feed(part, None, keep=width), judge.read([Segment("", False, part)])[0].pooled]
    parts = [Segment("", False, text[:7]), Segment("", False, text[7:20])]
    numbers += [step.pooled for steps in engine.read_many([prompt], [parts]) for step in steps]
    rows = engine.sample_many([prompt, prompt[:9]], 3, never, Sampling(0.7), 12, [1, 2])
    numbers += [step.pooled for row in rows for step in row]
    return [torch.as_tensor(n) for n in numbers], [step.tokens for row in rows for step in row]


@pytest.mark.parametrize("weights", FORMATS)
@pytest.mark.parametrize("kind", ["llama", "qwen2"])
def test_a_lean_layer_gives_the_same_to_the_last_bit(kind, weights):
    """Tokens one at a time, a few and many in a pass, alternatives in one row, rows of several lengths; and states."""
    lean, plain = (tiny_engine(kind, seed=3, weights=weights, lean=lean) for lean in (True, False))
    for engine, expected in ((lean, True), (plain, False)):
        assert [isinstance(x, LeanLayer) for x in decoder_layers(engine.model, 3)] == [expected] * 3
    (ours, tokens), (theirs, their_tokens) = everything(lean), everything(plain)
    assert tokens == their_tokens and len(ours) == len(theirs) > 80
    assert all(torch.equal(a, b) and a.isfinite().all() for a, b in zip(ours, theirs, strict=True))


def test_layers_that_do_not_fit_stay():
    """Eager attention needs a mask that others don't; a layer whose products are apart has nothing to gain."""
    eager = tiny_engine("qwen2", weights="int8", attention="eager").model
    plain = tiny_engine("qwen2").model
    make_lean(plain)
    assert not any(isinstance(m, LeanLayer) for model in (eager, plain) for m in model.modules())

"""What a text remembers between pieces: the token drawn at a step's end, and proposals that lie behind it."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from tiny import tiny_engine

from semspec.engine.base import Proposal, Sampling, Segment, never
from semspec.engine.session import MARKS

GREEDY = Sampling()
PROMPT = "Question: 12+7? "


@pytest.fixture(scope="module")
def engine():
    made = tiny_engine("llama", seed=11)
    made.observe([])
    return made


def after(n):
    """Steps of `n` characters."""
    return lambda text, upcoming: len(text) >= n


def test_what_was_drawn_at_a_steps_end_survives_a_draft_that_is_taken_back(engine):
    """Read and rolled back, or rewritten from its first token: the next token is the one that was drawn before."""
    prompt, warm = engine.encode(PROMPT), Sampling(1.0, seed=1)
    for seed in range(10):
        texts = []
        for how in ("at once", "rolled back", "rewritten"):
            session = engine.session(prompt)
            first = session.generate(after(3), warm, 9)
            drafted = [Segment("", tokens=engine.encode("77 88")), Segment("", tokens=engine.encode("99"))]
            if how != "at once":
                session.read(drafted)
            if how == "rolled back":
                session.rollback(7)
            again = Sampling(1.0, seed=100 + seed)  # other random numbers, which the first token does not need
            step = session.rewrite(7, never, again, 1) if how == "rewritten" else session.generate(never, again, 1)
            texts.append((first.tokens, step.tokens))
        assert texts[0] == texts[1] == texts[2]


def test_rejecting_a_draft_gives_no_token_a_second_chance():
    """Where a step ends unless one certain token follows, drawing anew behind a rejected draft would favour it."""
    engine = tiny_engine("qwen2", seed=1, layers=1)
    engine.observe([])
    prompt = engine.encode(PROMPT)
    heats = [Sampling(0.4, seed=i) for i in range(60)]
    own = [engine.session(prompt).generate(never, heat, 2).tokens[1] for heat in heats]
    favoured = Counter(own).most_common(1)[0][0]

    def stepwise(heat, forgets):
        session = engine.session(prompt)
        step = session.generate(lambda said, upcoming: upcoming != engine.decode([favoured]), heat, 2)
        if len(step.tokens) == 2:
            return step.tokens[1]
        session.read([Segment("", tokens=engine.encode("77"))])
        session.rollback(2)
        if forgets:
            session._pending = None
        return session.generate(never, replace(heat, seed=1000 + heat.seed), 1).tokens[0]

    assert [stepwise(heat, False) for heat in heats] == own
    assert [stepwise(heat, True) for heat in heats].count(favoured) > own.count(favoured) + 3


def test_proposals_behind_a_steps_end_are_verified_once(engine):
    """Steps cost no more passes than one text, propose no token twice, and write the same."""
    prompt = engine.encode(PROMPT)
    plain = engine.session(prompt).generate(never, GREEDY, 40).tokens

    def run(ends):
        session, asked = engine.session(prompt), []

        def propose(answer):
            asked.append(len(answer))
            return Proposal(plain[len(answer) : len(answer) + 6])

        steps, before = [], Counter(engine.passes)
        while sum(len(s.tokens) for s in steps) < 40:
            steps.append(session.generate(ends, GREEDY, 40 - sum(len(s.tokens) for s in steps), propose))
            assert session.tokens == [*prompt, *(t for s in steps for t in s.tokens)]
        return steps, asked, Counter(engine.passes) - before

    whole, asked, passes = run(never)
    steps, asked_too, passes_too = run(after(3))
    assert [t for s in steps for t in s.tokens] == plain and len(steps) > 5
    assert (asked, passes) == (asked_too, passes_too)
    assert sum(s.offered for s in steps) == sum(s.offered for s in whole)
    assert sum(s.kept for s in steps) == sum(s.kept for s in whole)


@pytest.mark.parametrize("heat", [0.0, 1.0])
def test_states_are_pooled_of_what_is_settled_alone(heat):
    """Whatever was proposed beside it, kept, refused or held: as where steps are written token by token."""
    engine, sampling = tiny_engine("llama", seed=11), Sampling(heat, seed=5)
    prompt, passes = engine.encode(PROMPT), []

    def run(propose):
        session, steps, before = engine.session(prompt), [], engine.passes.total()
        while sum(len(s.tokens) for s in steps) < 40:
            steps.append(session.generate(after(3), sampling, 40 - sum(len(s.tokens) for s in steps), propose))
        passes.append(engine.passes.total() - before)
        return steps

    plain = run(None)
    said = [t for s in plain for t in s.tokens]
    for right in (0, 2, 6):  # so many of what is proposed, and then what the model would not say
        found = run(lambda answer, n=right: Proposal([*said[len(answer) : len(answer) + n], engine.eos_id, 65]))
        assert [s.tokens for s in found] == [s.tokens for s in plain]
        for ours, theirs in zip(found, plain, strict=True):
            assert ours.pooled.shape == theirs.pooled.shape == (engine.n_layers, engine.hidden_size)
            np.testing.assert_allclose(ours.pooled, theirs.pooled, rtol=1e-4, atol=1e-4)
    assert passes[3] < passes[2] < passes[1] == passes[0]


@pytest.mark.parametrize("then", ["generate", "read", "draw", "rollback"])
def test_held_proposals_leave_no_trace(engine, then):
    """Whatever else is done behind a step's end gives what it gives in a text that never had proposals."""
    prompt = engine.encode(PROMPT)
    plain = engine.session(prompt).generate(never, GREEDY, 30).tokens
    found = []
    for proposes in (True, False):
        session = engine.session(prompt)
        propose = (lambda answer: Proposal(plain[len(answer) : len(answer) + 8])) if proposes else None
        first = session.generate(after(3), GREEDY, 30, propose)
        if then == "read":
            session.read([Segment("", tokens=engine.encode("xyz"))])
        elif then == "draw":
            session.draw(2, GREEDY)
        elif then == "rollback":
            session.rollback(1)
        found.append((first.tokens, session.generate(never, GREEDY, 12).tokens, session.tokens))
    assert found[0] == found[1]


def test_a_long_text_keeps_few_logits(engine):
    """Of its last boundaries only; behind an older one the next token is computed again, and is the same."""
    prompt = engine.encode(PROMPT)
    session, kept = engine.session(prompt), [engine.session(prompt).generate(never, GREEDY, 3).tokens]
    for i in range(2 * MARKS):
        session.follow([Segment(f"{i} ")])
    assert len(session._marks) == MARKS
    session.rollback(len(session.tokens) - len(prompt))
    before = engine.passes.copy()
    kept.append(session.generate(never, GREEDY, 3).tokens)
    assert kept[0] == kept[1] and (engine.passes - before).total() == 4

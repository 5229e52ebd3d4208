"""Exact speculation writes what the target alone would write, token for token: greedy, and sampled for the same seed.

Compared are token ids: half of the tokens here are bytes that make no character, and all those have one text.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch
from fakes import ScriptedProbe
from scripted import Offer, lettered_engine, watch
from tiny import tiny_engine

from semspec.decoding import semantic_hybrid
from semspec.decoding.acceptance import Judge, Judgement
from semspec.decoding.base import Answer, Method, Setup
from semspec.decoding.lookup import Lookup, continuation
from semspec.decoding.prompt_lookup import PromptLookup
from semspec.decoding.semantic import Semantic
from semspec.decoding.semantic_hybrid import SemanticHybrid
from semspec.decoding.speculative_sampling import SpeculativeSampling
from semspec.decoding.target import Target
from semspec.engine.base import Engine, Proposal, Sampling, Segment, Session, Step, never
from semspec.engine.session import CachedText
from semspec.engine.transformers import TransformersEngine
from semspec.errors import UserError

PROMPTS = 200


class TokenPrompt(Setup):
    """The question's characters are the prompt's tokens."""

    def prompt(self, engine: Engine, question: str) -> list[int]:
        return [ord(x) for x in question]


def pair(
    seed: int, noise: float, ends: int = 12, attention: float = 1.0
) -> tuple[TransformersEngine, TransformersEngine]:
    """A random target and a draft that nearly agrees with it; `ends` of the 257 tokens end a text.

    attention: how much of it counts; where it is little, what comes next follows from the last token, so texts repeat.
    """
    target, draft = tiny_engine(seed=seed, layers=2), tiny_engine(seed=seed, layers=2)
    torch.manual_seed(seed)
    with torch.no_grad():
        for p in draft.model.parameters():
            p.add_(noise * torch.randn_like(p))
        for engine in (draft, target):
            for layer in engine.model.model.layers:
                layer.self_attn.o_proj.weight.mul_(attention)
    chosen = np.random.default_rng(seed).choice(256, ends, replace=False)
    for engine in (draft, target):
        engine.eos_ids = frozenset(chosen.tolist()) | {engine.eos_id}
    return draft, watch(target)


def rules(rng: np.random.Generator, temperature: float = 0.0, kind: type[Setup] = Setup) -> Setup:
    """A budget of 1 to 30 tokens; steps that end at every third, fifth or ninth character, or never."""
    every = int(rng.choice([3, 5, 9, 1000]))
    return kind(
        "s", lambda text, up: len(text) % every == 0, int(rng.integers(2, 12)), int(rng.integers(1, 31)), temperature
    )


def foretold(target: TransformersEngine, rng: np.random.Generator) -> str:
    """For `TokenPrompt`: a text that goes on as the target would, past what ends its own, and then begins again."""
    start, ends = rng.integers(0, 256, 3).tolist(), target.eos_ids
    target.eos_ids = frozenset()
    target.observe([])
    text = start + target.session(start).generate(never, Sampling(), 14).tokens
    target.eos_ids = ends
    return "".join(map(chr, text + start))


def write(method: Method, question: str, seed: int = 0) -> tuple[Answer, tuple]:
    """An answer, and what must be the same in two of them: token ids, end, and each step's text and length."""
    method.target.sessions.clear()
    answer = method.answer(question, seed)
    ids = method.target.sessions[0].answer
    assert len(ids) == answer.output_tokens and (ids[-1] in method.target.eos_ids) == (answer.finish_reason == "eos")
    assert answer.text == method.target.decode(ids[:-1] if answer.finish_reason == "eos" else ids)
    return answer, (ids, answer.finish_reason, [(s.text, s.n_tokens) for s in answer.trace])


def cases(offer: Offer, ids: list[int], eos: frozenset[int], left: int, length: int) -> Iterator[str]:
    """What is special about an offer, of up to `length` tokens, made while the answer `ids` had `left` to go."""
    last = len(offer.tokens) - 1
    place = next((i for i, token in enumerate(offer.tokens) if token in eos), None)
    if place is not None:
        kept = offer.tokens[: place + 1] == ids[offer.at : offer.at + place + 1]
        yield f"EOS {'first' if place == 0 else 'last' if place == last else 'inside'} {'kept' if kept else 'refused'}"
    if length > left and last >= left - 1:
        yield "longer than what is left"


OCCUR = {
    "speculative_sampling": ("EOS first kept", "EOS first refused", "EOS last kept", "EOS last refused"),
    "prompt_lookup": ("EOS first kept", "EOS inside kept", "EOS inside refused", "EOS last kept", "EOS last refused"),
    "semantic_hybrid": ("EOS first kept", "EOS first refused", "EOS last kept", "EOS last refused"),
    "semantic_hybrid, drafted": ("EOS first kept", "EOS first refused", "EOS last kept", "EOS last refused"),
}


@pytest.fixture(scope="module")
def pairs() -> list[tuple[TransformersEngine, TransformersEngine]]:
    """The last two repeat themselves, and end sooner."""
    return [pair(0, 0.0), pair(1, 0.01), pair(2, 0.02, ends=40, attention=0.002), pair(3, 0.05, 40, 0.002)]


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    """Models this small only wait for a second thread."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def methods(draft: TransformersEngine, target: TransformersEngine, setup: Setup, k: int) -> dict:
    reject = Judge(ScriptedProbe(1.0, layers=[0]), ScriptedProbe(0.0, layers=[0]))
    return {
        "speculative_sampling": SpeculativeSampling(setup, draft, target, k),
        "prompt_lookup": PromptLookup(setup, target, 3, k),
        "semantic_hybrid": SemanticHybrid(setup, draft, target, reject, 1 + k % 3, ngram=2, length=k),
        "semantic_hybrid, drafted": SemanticHybrid(
            setup, draft, target, reject, 1 + k % 3, ngram=2, length=k, drafted=k
        ),
    }


def test_greedy_equals_the_target_token_for_token(pairs) -> None:
    """On random models, prompts, budgets and steps: the same tokens, steps and end; every special case occurs."""
    seen: Counter = Counter()
    for i in range(PROMPTS):
        rng = np.random.default_rng(i)
        draft, target = pairs[i % len(pairs)]
        repeats = i % len(pairs) > 1
        setup, k = rules(rng, kind=TokenPrompt if repeats else Setup), int(rng.integers(1, 7))
        question = foretold(target, rng) if repeats else "".join(rng.choice(list("ab cd 12+"), rng.integers(1, 12)))
        plain, wanted = write(Target(setup, target), question)
        for name, method in methods(draft, target, setup, k).items():
            answer, found = write(method, question)
            assert found == wanted, (name, i)
            assert answer.exact_accepted <= answer.exact_offered
            assert answer.target_passes + answer.exact_accepted >= answer.output_tokens
            seen[name, "saved"] += plain.target_passes - answer.target_passes
            seen[name, answer.finish_reason] += 1
            for offer in target.sessions[0].offers:
                left = setup.max_tokens - offer.at
                seen.update((name, case) for case in cases(offer, wanted[0], target.eos_ids, left, k))
    for name, found in OCCUR.items():
        for case in (*found, "longer than what is left", "eos", "length", "saved"):
            assert seen[name, case] >= 3, (name, case)


@pytest.mark.parametrize("ends", [100, 255, 256])
def test_greedy_equals_the_target_where_most_tokens_end_the_text(ends: int) -> None:
    """The end as the draft's first token, its last one, and the only one there is."""
    draft, target = pair(7, 0.02, ends)
    for i in range(30):
        rng = np.random.default_rng(i)
        setup, k = rules(rng), int(rng.integers(1, 6))
        question = "".join(rng.choice(list("ab cd 12+"), 5))
        _, wanted = write(Target(setup, target), question)
        for name, method in methods(draft, target, setup, k).items():
            assert write(method, question)[1] == wanted, (name, i)


@pytest.mark.parametrize("temperature", [0.0, 0.8])
@pytest.mark.parametrize("ends", [False, True])
def test_a_vocabulary_of_one_token(ends: bool, temperature: float) -> None:
    """All that can be written is that token: up to the budget, or once, where it ends the text."""
    draft, target = (lettered_engine("a", seed, knows_eos=False) for seed in (0, 1))
    watch(target)
    if ends:
        draft.eos_ids = target.eos_ids = frozenset({0})
    for budget in range(1, 8):
        setup = Setup("", lambda text, upcoming: len(text) % 3 == 0, 4, budget, temperature, raw=True)
        for k in (1, 2, 9):
            for name, method in methods(draft, target, setup, k).items():
                answer, (ids, *_) = write(method, "aaa")
                assert ids == [0] * (1 if ends else budget), (name, k)
                assert answer.finish_reason == ("eos" if ends else "length")


def test_sampled_lookups_equal_the_target_seed_by_seed(pairs) -> None:
    """What draws the target's own token at each place writes the same text for the same seed."""
    saved = 0
    for i in range(30):
        rng = np.random.default_rng(i)
        draft, target = pairs[i % len(pairs)]
        setup = rules(rng, temperature=0.6)
        _, plain = write(Target(setup, target), "ab", i)
        assert write(methods(draft, target, setup, 4)["prompt_lookup"], "ab", i)[1] == plain
        reject = Judge(ScriptedProbe(1.0, layers=[0]), ScriptedProbe(0.0, layers=[0]))
        semantic, wanted = write(Semantic(setup, draft, target, reject, 1), "ab", i)
        hybrid, found = write(SemanticHybrid(setup, draft, target, reject, 1), "ab", i)
        assert found == wanted
        saved += semantic.target_passes - hybrid.target_passes
    assert saved > 10


def test_hybrid_makes_the_verdicts_of_semantic(pairs) -> None:
    """Accepting some and rejecting some: the same verdicts and the same text, with fewer passes of the target."""
    passes = np.zeros(3)
    for i in range(40):
        rng = np.random.default_rng(i)
        draft, target = pairs[i % len(pairs)]
        setup = rules(rng)
        p = rng.random(40).round().tolist()
        answers, found = [], []
        for kind in (Semantic, SemanticHybrid, partial(SemanticHybrid, drafted=3)):
            judge = Judge(ScriptedProbe(1.0, layers=[1]), ScriptedProbe(*p, layers=[0]))
            answer, what = write(kind(setup, draft, target, judge, 1), "12+", i)
            answers.append(answer)
            found.append((what, [s.accepted for s in answer.trace]))
        assert found[0] == found[1] == found[2]
        passes += [a.target_passes for a in answers]
    assert passes[2] < passes[1] < passes[0]


class Noting:
    """Keeps steps by their length, and notes what it was shown of them."""

    def __init__(self) -> None:
        self.layers = {"draft": [0, 1], "target": [1]}
        self.seen: list[Step] = []

    def __call__(self, written: Sequence[Step], read: Sequence[Step], *_: object) -> list[Judgement]:
        self.seen += [*written, *read]
        return [Judgement(0.5, 0.5, float(len(step.text) % 3 > 0), False, 0.5) for step in written]


@pytest.mark.parametrize("temperature", [0.0, 0.6])
@pytest.mark.parametrize("kind", [Semantic, SemanticHybrid])
def test_a_draft_that_looks_up_drafts_the_same(pairs, kind, temperature) -> None:
    """The same steps, states and verdicts in fewer passes of the draft, whatever becomes of the steps."""
    passes: Counter = Counter()
    rejected = 0
    for i in range(40):
        draft, target = pairs[i % len(pairs)]
        repeats = i % len(pairs) > 1
        setup = rules(np.random.default_rng(i), temperature, TokenPrompt if repeats else Setup)
        question = foretold(draft, np.random.default_rng(i)) if repeats else "12+12+"
        found = []
        for lookup in (None, Lookup(3, 4)):
            judge, before = Noting(), draft.passes.total()
            _, text = write(kind(setup, draft, target, judge, 1 + i % 2, lookup), question, i)
            passes[lookup] += draft.passes.total() - before
            found.append((text, judge.seen))
        (plain, seen), (ours, ours_seen) = found
        assert ours == plain and [s.tokens for s in ours_seen] == [s.tokens for s in seen]
        for one, other in zip(ours_seen, seen, strict=True):
            np.testing.assert_allclose(one.pooled, other.pooled, rtol=1e-4, atol=1e-4)
            assert len(one.pooled) in (1, 2)
        rejected += sum(len(s.text) % 3 == 0 for s in seen)
    assert passes[Lookup(3, 4)] < passes[None] and rejected > 10


def test_where_the_rejected_draft_says_nothing_the_text_does(pairs, monkeypatch) -> None:
    """The same text in fewer passes where it repeats itself."""
    passes: Counter = Counter()
    nothing = lambda *_: lambda answer: Proposal([])  # noqa: E731
    for i in range(30):
        draft, target = pairs[2 + i % 2]
        setup = rules(np.random.default_rng(i), kind=TokenPrompt)
        question = foretold(target, np.random.default_rng(i))
        for source in ("neither", "the text", "both"):
            with monkeypatch.context() as patch:
                if source != "both":
                    patch.setattr(semantic_hybrid, "RejectedLookup", nothing)
                if source == "neither":
                    patch.setattr(semantic_hybrid, "PromptLookup", nothing)
                method = methods(draft, target, setup, 4)["semantic_hybrid"]
                answer, found = write(method, question)
            passes[source] += answer.target_passes
            assert found == write(Target(setup, target), question)[1]
    assert passes["both"] <= passes["the text"] < passes["neither"]


@pytest.mark.parametrize("right", range(6))
def test_a_pass_settles_what_is_right_of_a_proposal_and_one_token_more(pairs, right: int) -> None:
    """Proposals right for so many tokens and longer than what is left, with an end behind: no pass too many.

    Nor where each token is a step: what is verified beyond one belongs to the next.
    """
    _, target = pairs[0]
    target.observe([])
    prompt, n = target.encode("ab 12+"), 12
    alone = target.session(prompt).generate(never, Sampling(), n).tokens

    def propose(answer: Sequence[int]) -> Proposal:
        following = alone[len(answer) :][:right]
        wrong = [(token + 1) % 256 for token in alone[len(answer) + right :]]
        return Proposal([*following, *wrong, target.eos_id, *alone])

    for step_ends, pieces in ((never, 1), (lambda text, upcoming: True, n)):
        session = target.session(prompt)
        steps = [session.generate(step_ends, Sampling(), n, propose) for _ in range(pieces)]
        assert [t for step in steps for t in step.tokens] == alone == session.answer
        passes = sum(step.passes for step in steps)
        assert passes == -(-n // (1 + right)) and sum(step.kept for step in steps) == n - passes


@pytest.mark.parametrize(
    "then",
    [
        lambda session: session.read([Segment("", tokens=[5, 6])]),
        lambda session: session.draw(3, Sampling()),
        lambda session: session.rollback(1),
        lambda session: None,
    ],
    ids=["reads", "draws", "goes back", "writes alone"],
)
def test_what_is_verified_beyond_a_step_leaves_no_trace(pairs, then: Callable[[Session], object]) -> None:
    """Whatever a text does instead of going on with proposals, it is that of a text that had none."""
    _, target = pairs[0]
    target.observe([])
    prompt = target.encode("ab 12+")
    alone = target.session(prompt).generate(never, Sampling(), 12).tokens
    found = []
    for propose in (None, lambda answer: Proposal(alone[len(answer) :])):
        session = target.session(prompt)
        session.generate(lambda text, upcoming: True, Sampling(), 9, propose)
        then(session)
        step = session.generate(never, Sampling(), 6)
        found.append((session.answer, step.tokens, step.scores.logprob))
    assert found[0][:2] == found[1][:2]
    np.testing.assert_allclose(found[0][2], found[1][2], atol=1e-4)


def test_a_piece_taken_back_whole_is_written_again_the_same(pairs) -> None:
    """Sampled, and begun with the token that ended the step before: the same random numbers write the same tokens."""
    _, target = pairs[0]
    target.observe([])
    for seed in range(20):
        session = target.session(target.encode("12+"))
        session.generate(lambda text, upcoming: len(text) >= 2, Sampling(0.9, seed=seed), 6)
        again = Sampling(0.9, seed=100 + seed)
        first = session.generate(never, again, 8)
        session.rollback(len(first.tokens))
        assert session.generate(never, again, 8).tokens == first.tokens
        session.rollback(len(first.tokens) + 1)  # into the step before: nothing is pending there
        assert session.generate(never, again, 1).tokens


def test_two_vocabularies_are_refused() -> None:
    """Token-level speculation across vocabularies is an error that says so."""
    setup, draft, target = rules(np.random.default_rng(0)), tiny_engine(merges=True), tiny_engine()
    with pytest.raises(UserError, match="one vocabulary"):
        SpeculativeSampling(setup, draft, target)
    judge = Judge(ScriptedProbe(1.0, layers=[0]), ScriptedProbe(0.0, layers=[0]))
    assert SemanticHybrid(setup, draft, target, judge).drafted == 0
    with pytest.raises(UserError, match="proposals: draft needs one vocabulary"):
        SemanticHybrid(setup, draft, target, judge, drafted=3)


def test_continuation_by_hand() -> None:
    """The longest end that occurs wins, at its latest place; nothing follows the text's own end."""
    text = [1, 2, 3, 9, 2, 3, 7, 1, 2, 3]
    assert continuation(text, text, 3, 2) == [9, 2]
    assert continuation(text, text, 2, 2) == [7, 1]
    assert continuation([5], text, 3, 2) == []
    assert continuation([8, 3], text, 3, 9) == [7, 1, 2, 3]
    assert continuation([8, 3], text, 3, 9, shortest=2) == []
    assert continuation([], text, 3, 2) == []
    assert continuation(text, text, 3, 0) == continuation(text, text, 3, -4) == []


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_each_drafted_token_costs_the_draft_one_pass(monkeypatch: pytest.MonkeyPatch, temperature: float) -> None:
    """The first of a proposal comes out of the pass over what the target settled, after a rejection too."""
    drawn, draw = Counter(), CachedText.draw

    def counted(session: CachedText, n_tokens: int, sampling: Sampling) -> Proposal:
        made = draw(session, n_tokens, sampling)
        drawn["tokens"] += len(made.tokens)
        return made

    monkeypatch.setattr(CachedText, "draw", counted)
    rejected = 0
    for seed in range(4):
        draft, target = pair(seed, 0.02, ends=0)
        made, rng = draft.passes.copy(), np.random.default_rng(seed)
        answer = SpeculativeSampling(replace(rules(rng, temperature), max_tokens=30), draft, target, 4).answer("12+7? ")
        assert (draft.passes - made).total() == 1 + drawn.pop("tokens")  # and the prompt's
        rejected += answer.exact_offered - answer.exact_accepted
    assert rejected > 10

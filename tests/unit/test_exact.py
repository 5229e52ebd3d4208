"""Exact speculation writes what the target alone would write: token for token, or in distribution."""

from __future__ import annotations

from collections import Counter
from contextlib import nullcontext
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from fakes import ScriptedProbe
from scipy.stats import chi2
from tiny import tiny_engine

from semspec.decoding.acceptance import Judge
from semspec.decoding.base import Answer, Setup
from semspec.decoding.lookup import continuation
from semspec.decoding.prompt_lookup import PromptLookup
from semspec.decoding.semantic import Semantic
from semspec.decoding.semantic_hybrid import SemanticHybrid
from semspec.decoding.speculative_sampling import Drafts, SpeculativeSampling
from semspec.decoding.target import Target
from semspec.engine.base import Sampling, never
from semspec.engine.sampling import nucleus, verify
from semspec.engine.transformers import TransformersEngine
from semspec.errors import UserError

PROMPTS = 200


def pair(seed: int, noise: float, ends: int = 12) -> tuple[TransformersEngine, TransformersEngine]:
    """A random target and a draft that nearly agrees with it; `ends` of the 257 tokens end a text."""
    target, draft = tiny_engine(seed=seed, layers=2), tiny_engine(seed=seed, layers=2)
    torch.manual_seed(seed)
    with torch.no_grad():
        for p in draft.model.parameters():
            p.add_(noise * torch.randn_like(p))
    chosen = np.random.default_rng(seed).choice(256, ends, replace=False)
    for engine in (draft, target):
        engine.eos_ids = frozenset(chosen.tolist()) | {engine.eos_id}
    return draft, target


def rules(rng: np.random.Generator, temperature: float = 0.0) -> Setup:
    """A budget of 1 to 30 tokens; steps that end at every third, fifth or ninth character, or never."""
    every = int(rng.choice([3, 5, 9, 1000]))
    return Setup(
        "s", lambda text, up: len(text) % every == 0, int(rng.integers(2, 12)), int(rng.integers(1, 31)), temperature
    )


def outcome(answer: Answer) -> tuple[str, str, int, list[str]]:
    return answer.text, answer.finish_reason, answer.output_tokens, [s.text for s in answer.trace]


@pytest.fixture(scope="module")
def pairs() -> list[tuple[TransformersEngine, TransformersEngine]]:
    return [pair(seed, noise) for seed, noise in enumerate((0.0, 0.01, 0.02, 0.05))]


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
    }


def test_greedy_equals_the_target_token_for_token(pairs) -> None:
    """On random models, prompts, budgets and steps: the same text, steps and end; every kind of end occurs."""
    seen: Counter = Counter()
    for i in range(PROMPTS):
        rng = np.random.default_rng(i)
        draft, target = pairs[i % len(pairs)]
        setup, k = rules(rng), int(rng.integers(1, 9))
        question = "".join(rng.choice(list("ab cd 12+"), rng.integers(1, 12)))
        plain = Target(setup, target).answer(question)
        for name, method in methods(draft, target, setup, k).items():
            answer = method.answer(question)
            assert outcome(answer) == outcome(plain), (name, i)
            assert answer.exact_accepted <= answer.exact_offered
            assert answer.target_passes + answer.exact_accepted >= answer.output_tokens
            seen[name, "saved"] += plain.target_passes - answer.target_passes
            seen[name, answer.finish_reason] += 1
    for name in ("speculative_sampling", "prompt_lookup", "semantic_hybrid"):
        assert seen[name, "eos"] > 20 and seen[name, "length"] > 20 and seen[name, "saved"] > 5, seen


@pytest.mark.parametrize("ends", [100, 255, 256])
def test_greedy_equals_the_target_where_most_tokens_end_the_text(ends: int) -> None:
    """The end as the draft's first token, its last one, and the only one there is."""
    draft, target = pair(7, 0.02, ends)
    for i in range(30):
        rng = np.random.default_rng(i)
        setup, k = rules(rng), int(rng.integers(1, 6))
        question = "".join(rng.choice(list("ab cd 12+"), 5))
        plain = Target(setup, target).answer(question)
        for name, method in methods(draft, target, setup, k).items():
            assert outcome(method.answer(question)) == outcome(plain), (name, i)


def test_sampled_lookups_equal_the_target_seed_by_seed(pairs) -> None:
    """What draws the target's own token at each place writes the same text for the same seed."""
    saved = 0
    for i in range(30):
        rng = np.random.default_rng(i)
        draft, target = pairs[i % len(pairs)]
        setup = rules(rng, temperature=0.6)
        plain = Target(setup, target).answer("ab", seed=i)
        made = methods(draft, target, setup, 4)
        assert outcome(made["prompt_lookup"].answer("ab", seed=i)) == outcome(plain)
        reject = Judge(ScriptedProbe(1.0, layers=[0]), ScriptedProbe(0.0, layers=[0]))
        semantic = Semantic(setup, draft, target, reject, 1).answer("ab", seed=i)
        hybrid = SemanticHybrid(setup, draft, target, reject, 1).answer("ab", seed=i)
        assert outcome(hybrid) == outcome(semantic)
        saved += semantic.target_passes - hybrid.target_passes
    assert saved > 10


def test_hybrid_makes_the_verdicts_of_semantic(pairs) -> None:
    """Accepting some and rejecting some: the same verdicts and the same text, with fewer passes of the target."""
    passes = np.zeros(2)
    for i in range(40):
        rng = np.random.default_rng(i)
        draft, target = pairs[i % len(pairs)]
        setup = rules(rng)
        p = rng.random(40).round().tolist()
        answers = []
        for kind in (Semantic, SemanticHybrid):
            judge = Judge(ScriptedProbe(1.0, layers=[1]), ScriptedProbe(*p, layers=[0]))
            answers.append(kind(setup, draft, target, judge, 1).answer("12+", i))
        assert outcome(answers[0]) == outcome(answers[1])
        assert [s.accepted for s in answers[0].trace] == [s.accepted for s in answers[1].trace]
        passes += [a.target_passes for a in answers]
    assert passes[1] < passes[0]


def fits(counts: np.ndarray, expected: np.ndarray) -> bool:
    """Chi-square at the level of one in ten thousand; places expected fewer than 5 times are pooled."""
    small = expected < 5
    observed = np.append(counts[~small], counts[small].sum())
    wanted = np.append(expected[~small], expected[small].sum())
    if wanted[-1] < 1e-9:
        if observed[-1]:
            return False  # what cannot be
        observed, wanted = observed[:-1], wanted[:-1]
    statistic = ((observed - wanted) ** 2 / wanted).sum()
    return bool(statistic < chi2.ppf(1 - 1e-4, len(wanted) - 1))


@pytest.mark.parametrize("seed", range(4))
def test_the_rule_keeps_the_targets_distribution(seed: int) -> None:
    """Drawn from q, then kept or replaced: distributed as p, for nuclei that overlap in part."""
    rng = np.random.default_rng(seed)
    sampling = Sampling(temperature=0.8, top_p=0.9)
    p_logits, q_logits = torch.tensor(0.6 * rng.normal(size=(2, 12)))
    (q_ids, q), (p_ids, p) = (nucleus(x[None], sampling) for x in (q_logits, p_logits))
    q, p = (q / q.sum())[0].numpy(), (p / p.sum())[0].numpy()
    counts, n = np.zeros(12), 6000
    for u in rng.random((n, 3)):
        token = int(q_ids[0][min(int(np.searchsorted(q.cumsum(), u[0], side="right")), int((q > 0).sum()) - 1)])
        counts[verify(p_logits, sampling, token, q_ids[0].numpy(), q, (u[1], u[2]))] += 1
    expected = np.zeros(12)
    expected[p_ids[0].numpy()] = n * p
    assert (p > 0).sum() > 3 and fits(counts, expected)
    assert not fits(counts, np.roll(expected, 1))


def test_sampled_speculation_has_the_targets_distribution(pairs) -> None:
    """The second and third token, which follow a drafted one, are distributed as the target's own."""
    draft, target = pairs[3]
    draft.observe([])
    target.observe([])
    prompt, n = target.encode("12+"), 500
    found = []
    for speculate in (False, True):
        session, writer = target.session(prompt), draft.session(prompt)
        counts: Counter = Counter()
        for i in range(n):
            draw = Sampling(0.5, 0.8, seed=10_000 * (1 + speculate) + i)
            out = SimpleNamespace(sampling=lambda d=draw: d, phase=lambda name: nullcontext())
            drafts = Drafts(writer, 3, out) if speculate else None
            if drafts:
                drafts.start = len(prompt)
            step = session.generate(never, draw, 3, drafts)
            counts[tuple(step.tokens[:3])] += 1
            session.rollback(len(step.tokens))
        found.append(counts)
    names = sorted(set(found[0]) | set(found[1]))
    a, b = (np.array([f[x] for x in names], float) for f in found)
    common = a + b >= 20
    a, b = (np.append(x[common], x[~common].sum()) for x in (a, b))
    statistic = ((a - b) ** 2 / np.maximum(a + b, 1)).sum()
    assert len(a) > 5 and statistic < chi2.ppf(1 - 1e-4, len(a) - 1), (statistic, len(a))


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
    with pytest.raises(UserError, match="one vocabulary"):
        SpeculativeSampling(rules(np.random.default_rng(0)), tiny_engine(merges=True), tiny_engine())


def test_continuation_by_hand() -> None:
    """The longest end that occurs wins, at its latest place; nothing follows the text's own end."""
    text = [1, 2, 3, 9, 2, 3, 7, 1, 2, 3]
    assert continuation(text, text, 3, 2) == [9, 2]
    assert continuation(text, text, 2, 2) == [7, 1]
    assert continuation([5], text, 3, 2) == []
    assert continuation([8, 3], text, 3, 9) == [7, 1, 2, 3]
    assert continuation([8, 3], text, 3, 9, shortest=2) == []
    assert continuation([], text, 3, 2) == []

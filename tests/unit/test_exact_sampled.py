"""Exact speculation, sampled: answers are distributed as the target's own, whose law is computed from its definition.

The models are tables: a handful of tokens, and logits of their own for each text, so that a token too many or too few
in a cache changes all that follows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import ClassVar

import numpy as np
import pytest
import torch
from scipy.stats import chi2
from scripted import lettered_engine, letters

from semspec.decoding.acceptance import Judgement
from semspec.decoding.base import Method, Setup
from semspec.decoding.prompt_lookup import PromptLookup
from semspec.decoding.semantic_hybrid import SemanticHybrid
from semspec.decoding.speculative_sampling import SpeculativeSampling
from semspec.decoding.target import Target
from semspec.engine.base import Sampling, Step, never
from semspec.engine.cache import new_cache
from semspec.engine.local import TextEngine
from semspec.engine.pool import Pool
from semspec.engine.sampling import nucleus, pick, verify
from semspec.engine.session import CachedText

LETTERS = "abcd"
LONGEST = 3  # tokens of an answer
CHANCE = 1e-4
N, MANY = 240, 600  # answers: to see tokens out of place; to see an acceptance that is a tenth too small
QUESTION = "abcdabcab"

Logits = Callable[[list[int]], torch.Tensor]  # of the next token `[vocab]` after these


class TableText(CachedText):
    """A text whose cache is the list of its tokens."""

    engine: Table

    def _open(self) -> None:
        self._cache: list[int] = []

    def _compute(self, tokens: list[int], pool: Pool | None, keep: int) -> torch.Tensor:
        rows = []
        for token in tokens:
            self._cache.append(token)
            rows.append(self.engine.logits(self._cache))
        return torch.stack(rows[-keep:])

    def _crop(self, n_tokens: int) -> None:
        del self._cache[-n_tokens:]


class Table(TextEngine):
    """Logits of `LETTERS` and EOS, drawn once for each text; `shy`: how much less a draft writes one of the letters."""

    def __init__(self, seed: int, shy: float = 0.0):
        super().__init__(letters(LETTERS), f"table-{seed}", [], 1, 1, torch.device("cpu"))
        self.seed, self.shy = seed, shy
        self.known: dict[tuple[int, ...], torch.Tensor] = {}

    def logits(self, tokens: Sequence[int]) -> torch.Tensor:
        """`[vocab]`, after these tokens."""
        key = tuple(tokens)
        if key not in self.known:
            rng = np.random.default_rng([self.seed, *key])
            row = rng.normal(size=len(LETTERS) + 1)
            row[rng.integers(len(LETTERS))] -= self.shy
            self.known[key] = torch.tensor(row, dtype=torch.float32)
        return self.known[key]

    def session(self, prompt: Sequence[int]) -> TableText:
        return TableText(self, prompt)


def shares(logits: np.ndarray, setup: Setup) -> np.ndarray:
    """Probabilities `[vocab]` of the fewest likeliest tokens that hold `top_p` of the whole."""
    p = np.exp(logits.astype(float) / setup.temperature)
    p /= p.sum()
    order = np.argsort(-p)
    kept = order[np.cumsum(p[order]) - p[order] < setup.top_p]
    nuclear = np.zeros(len(p))
    nuclear[kept] = p[kept] / p[kept].sum()
    return nuclear


def law(logits: Logits, setup: Setup) -> dict[str, float]:
    """{answer: its probability}; EOS is written as a full stop."""
    found: dict[str, float] = {}
    begun = [("", 1.0)]
    while begun:
        text, chance = begun.pop()
        p = shares(logits([LETTERS.index(x) for x in QUESTION + text]).numpy(), setup)
        for token in np.flatnonzero(p):
            longer = text + (LETTERS + ".")[token]
            if longer.endswith(".") or len(longer) == setup.max_tokens:
                found[longer] = chance * p[token]
            else:
                begun.append((longer, chance * p[token]))
    return found


def written(method: Method, n: int) -> Counter[str]:
    """How often each answer comes, of `n` seeds."""
    answers = (method.answer(QUESTION, seed) for seed in range(n))
    return Counter(a.text + "." * (a.finish_reason == "eos") for a in answers)


def likelihood(counts: Counter, wanted: dict) -> float:
    """The chance of counts that stray as far as these (chi-square); what is expected fewer than 5 times is pooled."""
    if counts.keys() - wanted.keys():
        return 0.0
    observed = np.array([counts[x] for x in wanted])
    expected = np.array(list(wanted.values())) * counts.total()
    small = expected < 5
    if small.any():
        observed, expected = (np.append(x[~small], x[small].sum()) for x in (observed, expected))
    return float(chi2.sf(((observed - expected) ** 2 / expected).sum(), len(expected) - 1))


def looks_right(method: Method, logits: Logits, n: int) -> bool:
    """Whether `n` answers stray no further from the law of `logits` than `CHANCE` allows."""
    return likelihood(written(method, n), law(logits, method.setup)) > CHANCE


class Reject:
    """Keeps no drafted step, so that each is the target's own."""

    layers: ClassVar = {"draft": [], "target": []}

    def __call__(self, written: Sequence[Step], *context: object) -> list[Judgement]:
        return [Judgement(p=0.0, q=1.0, a=0.0, far=False, score=0.0)] * len(written)


def hybrid(draft: TextEngine, target: TextEngine, setup: Setup, gamma: int, drafted: int = 0) -> Method:
    return SemanticHybrid(setup, draft, target, Reject(), gamma, ngram=2, length=2, drafted=drafted)


METHODS: dict[str, Callable[[TextEngine, TextEngine, Setup], Method]] = {
    "target": lambda draft, target, setup: Target(setup, target),
    "speculative_sampling of 1": lambda draft, target, setup: SpeculativeSampling(setup, draft, target, 1),
    "speculative_sampling of 2": lambda draft, target, setup: SpeculativeSampling(setup, draft, target, 2),
    "speculative_sampling of 5": lambda draft, target, setup: SpeculativeSampling(setup, draft, target, 5),
    "prompt_lookup of 5": lambda draft, target, setup: PromptLookup(setup, target, 2, 5),
    "semantic_hybrid of 1": lambda draft, target, setup: hybrid(draft, target, setup, 1),
    "semantic_hybrid of 2": lambda draft, target, setup: hybrid(draft, target, setup, 2),
    "semantic_hybrid of 1, drafted": lambda draft, target, setup: hybrid(draft, target, setup, 1, drafted=2),
}
FINEST = "speculative_sampling of 2"

STEPS = {  # where steps end, and after how many tokens at most
    "in front of some letters": (lambda text, upcoming: upcoming in "ab", LONGEST),
    "after two tokens": (never, 2),
}


def rules(steps: str = "in front of some letters") -> Setup:
    step_ends, limit = STEPS[steps]
    return Setup("", step_ends, limit, LONGEST, temperature=0.8, top_p=0.9, raw=True)


TARGET = Table(1)
SHY = Table(1, shy=1.5)  # what it lacks is one letter
OTHER = Table(5)  # agrees by chance; it lacks several


@pytest.mark.parametrize("name", METHODS)
def test_answers_have_the_targets_distribution(name: str) -> None:
    """Where a step ends in front of what is drawn already: as often as by law, and no answer beyond it."""
    assert looks_right(METHODS[name](SHY, TARGET, rules()), TARGET.logits, MANY if name == FINEST else N)


@pytest.mark.parametrize(
    "name", ["speculative_sampling of 2", "prompt_lookup of 5", "semantic_hybrid of 2", "semantic_hybrid of 1, drafted"]
)
def test_steps_cut_at_their_limit_keep_the_distribution(name: str) -> None:
    """Where it is the step's limit that ends it, within a draft or behind it."""
    assert looks_right(METHODS[name](SHY, TARGET, rules("after two tokens")), TARGET.logits, N)


def test_a_draft_of_its_own_mind_keeps_the_distribution() -> None:
    """Where most of a draft is replaced, by one of several tokens."""
    assert looks_right(METHODS[FINEST](OTHER, TARGET, rules()), TARGET.logits, MANY)


def test_a_real_cache_keeps_the_distribution() -> None:
    """The same of a transformer, whose law is computed without a cache."""
    draft, target = lettered_engine(LETTERS, seed=2), lettered_engine(LETTERS, seed=1)

    def logits(tokens: list[int]) -> torch.Tensor:
        return target.forward(torch.tensor([tokens]), new_cache(target.config))[0, -1]

    assert looks_right(METHODS[FINEST](draft, target, rules()), logits, N // 3)


def timid(logits: torch.Tensor, sampling: Sampling, token: int, ids: np.ndarray, probs: np.ndarray, u: tuple) -> int:
    """Leviathan's rule with nine tenths of its acceptance."""
    return verify(logits, sampling, token, ids, probs, (u[0] / 0.9, u[1]))


def unmixed(logits: torch.Tensor, sampling: Sampling, token: int, ids: np.ndarray, probs: np.ndarray, u: tuple) -> int:
    """Leviathan's rule with p itself in place of the residual."""
    if verify(logits, sampling, token, ids, probs, u) == token:
        return token
    return int(pick(*nucleus(logits[None], sampling), torch.tensor([u[1]]))[0])


def bold(logits: torch.Tensor, sampling: Sampling, token: int, ids: np.ndarray, probs: np.ndarray, u: tuple) -> int:
    """No rule at all."""
    return token


def stale(logits: torch.Tensor, sampling: Sampling, token: int, ids: np.ndarray, probs: np.ndarray, u: tuple) -> int:
    """Leviathan's rule with one random number for both of its draws."""
    return verify(logits, sampling, token, ids, probs, (u[0], u[0]))


@pytest.mark.parametrize(
    "draft, rule, n",
    [(SHY, timid, MANY), (OTHER, stale, MANY), (OTHER, unmixed, N), (SHY, bold, N)],
    ids=["timid", "stale", "unmixed", "bold"],
)
def test_a_wrong_rule_is_seen(draft: Table, rule: Callable, n: int, monkeypatch) -> None:
    """The tests above can tell: under each wrong rule they fail."""
    monkeypatch.setattr("semspec.engine.session.verify", rule)
    assert not looks_right(METHODS[FINEST](draft, TARGET, rules()), TARGET.logits, n)


@pytest.mark.parametrize("seed", range(2))
def test_the_rule_keeps_the_targets_distribution(seed: int) -> None:
    """Drawn from q, then kept or replaced: distributed as p, for nuclei that overlap in part."""
    rng = np.random.default_rng(seed)
    setup, sampling = Setup("", never, 1, 1, 0.8, 0.9), Sampling(temperature=0.8, top_p=0.9)
    p_logits, q_logits = torch.tensor(0.6 * rng.normal(size=(2, 12)))
    p, q = (dict(enumerate(shares(x.numpy(), setup))) for x in (p_logits, q_logits))
    ids, probs = np.array(list(q)), np.array(list(q.values()))
    assert {x for x in p if p[x]} != {x for x in q if q[x]} and sum(x > 0 for x in p.values()) > 3
    n, counts = 3000, Counter()
    for token, *u in zip(rng.choice(12, n, p=probs), rng.random(n), rng.random(n), strict=True):
        counts[verify(p_logits, sampling, int(token), ids, probs, tuple(u))] += 1
    assert likelihood(counts, {x: share for x, share in p.items() if share}) > CHANCE


def test_a_wrong_law_is_seen() -> None:
    """Nor do the target's answers pass for those of the draft, or of another temperature."""
    method = METHODS["target"](SHY, TARGET, rules())
    assert not looks_right(method, SHY.logits, N)
    assert not looks_right(method, lambda tokens: 1.3 * TARGET.logits(tokens), N)

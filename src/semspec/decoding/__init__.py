"""Decoding methods by name: one file per method, each a loop that reads like its source's algorithm."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from semspec.decoding.acceptance import Judge
from semspec.decoding.base import (
    Answer,
    Factory,
    JointPredictor,
    Method,
    OnStep,
    Predictor,
    Setup,
    TraceStep,
    Transcript,
    registry,
)
from semspec.decoding.draft import Draft
from semspec.decoding.lookup import Lookup
from semspec.decoding.prompt_lookup import PromptLookup
from semspec.decoding.reward_guided import RewardGuided, Scorer
from semspec.decoding.reward_guided import find as find_scorer
from semspec.decoding.semantic import Semantic
from semspec.decoding.semantic_hybrid import SemanticHybrid
from semspec.decoding.semantic_other import SemanticCrossDomain, SemanticLastHidden
from semspec.decoding.semantic_random import Chance, SemanticRandom
from semspec.decoding.specreason import PromptedScorer, SpecReason
from semspec.decoding.speculative_sampling import SpeculativeSampling
from semspec.decoding.speculative_thinking import SpeculativeThinking
from semspec.decoding.target import Target
from semspec.engine.base import Engine, Wanted
from semspec.errors import UserError
from semspec.schema import Settings

# draft, target: Predictor; joint: JointPredictor; a method with probes of its own: such a mapping
Probes = Mapping[str, Any]


def _need(engine: Engine | None, role: str) -> Engine:
    if engine is None:
        raise ValueError(f"this method needs the {role} engine")
    return engine


def _target(settings: Settings, draft: Engine | None, target: Engine | None, probes: Probes) -> Method:
    return Target(Setup.of(settings), _need(target, "target"))


def _draft(settings: Settings, draft: Engine | None, target: Engine | None, probes: Probes) -> Method:
    return Draft(Setup.of(settings), _need(draft, "draft"), _need(target, "target"))


def _speculative_sampling(settings: Settings, draft: Engine | None, target: Engine | None, probes: Probes) -> Method:
    engines = _need(draft, "draft"), _need(target, "target")
    return SpeculativeSampling(Setup.of(settings), *engines, settings.exact.draft_tokens)


def _prompt_lookup(settings: Settings, draft: Engine | None, target: Engine | None, probes: Probes) -> Method:
    exact = settings.exact
    return PromptLookup(Setup.of(settings), _need(target, "target"), exact.ngram, exact.lookup_tokens)


def _specreason(settings: Settings, draft: Engine | None, target: Engine | None, probes: Probes) -> Method:
    other, reader = settings.baselines, _need(target, "target")
    scorer = PromptedScorer(reader, other.scoring)
    first = other.first_steps
    return SpecReason(Setup.of(settings), _need(draft, "draft"), reader, scorer, other.mark / 9, first)


def _reward_guided(settings: Settings, draft: Engine | None, target: Engine | None, probes: Probes) -> Method:
    engines, other = (_need(draft, "draft"), _need(target, "target")), settings.baselines
    scorer = find_scorer(other.scorer) if other.scorer else None
    return RewardGuided(Setup.of(settings), *engines, scorer, other.reward)


def _speculative_thinking(settings: Settings, draft: Engine | None, target: Engine | None, probes: Probes) -> Method:
    engines = _need(draft, "draft"), _need(target, "target")
    return SpeculativeThinking(Setup.of(settings), *engines, settings.baselines.first_tokens)


def _judge(name: str, settings: Settings, probes: Probes) -> Judge:
    needed = {"draft", "target"} | ({"joint"} if settings.decide.rule == "joint" else set())
    missing = " and ".join(sorted(needed - set(probes)))
    if missing == "joint":
        raise UserError(
            f"method '{name}' has no joint predictor; `semspec run` trains one unless `cluster.labels: own`"
        )
    if missing:
        raise UserError(f"method '{name}' needs a trained probe: {missing}; run `semspec run` first")
    return Judge(probes["draft"], probes["target"], probes.get("joint"), settings.decide)


def _semantic(settings: Settings, draft: Engine | None, target: Engine | None, probes: Probes) -> Method:
    return _judged(Semantic, settings, draft, target, probes)


def _last_hidden(settings: Settings, draft: Engine | None, target: Engine | None, probes: Probes) -> Method:
    return _judged(SemanticLastHidden, settings, draft, target, probes.get(SemanticLastHidden.name, {}))


def _cross_domain(settings: Settings, draft: Engine | None, target: Engine | None, probes: Probes) -> Method:
    return _judged(SemanticCrossDomain, settings, draft, target, probes.get(SemanticCrossDomain.name, {}))


def _judged(
    kind: type[Semantic], settings: Settings, draft: Engine | None, target: Engine | None, probes: Probes
) -> Method:
    engines = _need(draft, "draft"), _need(target, "target")
    judge = _judge(kind.name, settings, probes)
    return kind(Setup.of(settings), *engines, judge, settings.bench.gamma, drafting(settings))


def drafting(settings: Settings) -> Lookup | None:
    """What the draft looks up as it writes; `UserError` where its states could not be pooled meanwhile."""
    exact = settings.exact
    if exact.drafting == "plain":
        return None
    if settings.engine.of("draft").kind == "sglang":
        raise UserError("exact.drafting: lookup needs the draft on an engine of this process, not on SGLang")
    return Lookup(exact.ngram, exact.lookup_tokens)


def _semantic_hybrid(settings: Settings, draft: Engine | None, target: Engine | None, probes: Probes) -> Method:
    judge, exact = _judge(SemanticHybrid.name, settings, probes), settings.exact
    return SemanticHybrid(
        Setup.of(settings),
        _need(draft, "draft"),
        _need(target, "target"),
        judge,
        settings.bench.gamma,
        drafting(settings),
        ngram=exact.ngram,
        length=exact.lookup_tokens,
        drafted=exact.draft_tokens if exact.proposals == "draft" else 0,
    )


def _semantic_random(settings: Settings, draft: Engine | None, target: Engine | None, probes: Probes) -> Method:
    engines = _need(draft, "draft"), _need(target, "target")
    return SemanticRandom(Setup.of(settings), *engines, Chance(), settings.bench.gamma, drafting(settings))


METHODS: Mapping[str, Factory] = registry(
    (Target.name, _target),
    (Draft.name, _draft),
    (SpeculativeSampling.name, _speculative_sampling),
    (PromptLookup.name, _prompt_lookup),
    (SpecReason.name, _specreason),
    (SpeculativeThinking.name, _speculative_thinking),
    (RewardGuided.name, _reward_guided),
    (Semantic.name, _semantic),
    (SemanticHybrid.name, _semantic_hybrid),
    (SemanticRandom.name, _semantic_random),
    (SemanticLastHidden.name, _last_hidden),
    (SemanticCrossDomain.name, _cross_domain),
)


NEEDS_DRAFT = frozenset(METHODS) - {Target.name, PromptLookup.name}
NEEDS_PROBES = frozenset({Semantic.name, SemanticHybrid.name, SemanticLastHidden.name, SemanticCrossDomain.name})
_POOLS = NEEDS_PROBES - {SemanticLastHidden.name}  # the states of more than one layer
_VERIFIES = frozenset({SpeculativeSampling.name, PromptLookup.name, SemanticLastHidden.name, SemanticRandom.name})


def wanted(name: str) -> Wanted:
    """What the method `name` asks for where its target reads several tokens."""
    return "judged" if name in _POOLS else "verified" if name in _VERIFIES else "followed"


def build(
    name: str, settings: Settings, draft_engine: Engine | None, target_engine: Engine | None, probes: Probes
) -> Method:
    """The method `name`. `probes` maps "draft", "target" to their predictors, "joint" to the decision's.

    Methods outside `NEEDS_DRAFT` need no draft engine; `draft` needs the target's tokenizer for the counts.
    UserError when the name is unknown or a probe is missing.
    """
    if name not in METHODS:
        raise UserError(f"unknown method '{name}'; known: {', '.join(METHODS)}")
    return METHODS[name](settings, draft_engine, target_engine, probes)


__all__ = [
    "METHODS",
    "NEEDS_DRAFT",
    "NEEDS_PROBES",
    "Answer",
    "JointPredictor",
    "Judge",
    "Method",
    "OnStep",
    "Predictor",
    "RewardGuided",
    "Scorer",
    "Setup",
    "TraceStep",
    "Transcript",
    "build",
    "wanted",
]

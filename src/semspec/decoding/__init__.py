"""Decoding methods by name: one file per method, each a loop that reads like its source's algorithm."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from semspec.config import Settings
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
from semspec.decoding.semantic import Semantic
from semspec.decoding.target import Target
from semspec.engine.base import Engine
from semspec.errors import UserError

Probes = Mapping[str, Any]  # draft, target: Predictor; joint: JointPredictor
NEEDS_PROBES = frozenset({Semantic.name})


def _need(engine: Engine | None, role: str) -> Engine:
    if engine is None:
        raise ValueError(f"this method needs the {role} engine")
    return engine


def _target(settings: Settings, draft: Engine | None, target: Engine | None, probes: Probes) -> Method:
    return Target(Setup.of(settings), _need(target, "target"))


def _draft(settings: Settings, draft: Engine | None, target: Engine | None, probes: Probes) -> Method:
    return Draft(Setup.of(settings), _need(draft, "draft"), _need(target, "target"))


def _semantic(settings: Settings, draft: Engine | None, target: Engine | None, probes: Probes) -> Method:
    needed = {"draft", "target"} | ({"joint"} if settings.decide.rule == "joint" else set())
    missing = " and ".join(sorted(needed - set(probes)))
    if missing:
        raise UserError(f"method 'semantic' needs a trained probe: {missing}; run `semspec run` first")
    return Semantic(
        Setup.of(settings),
        _need(draft, "draft"),
        _need(target, "target"),
        Judge(probes["draft"], probes["target"], probes.get("joint"), settings.decide),
        settings.bench.gamma,
    )


METHODS: Mapping[str, Factory] = registry((Target.name, _target), (Draft.name, _draft), (Semantic.name, _semantic))


def build(
    name: str, settings: Settings, draft_engine: Engine | None, target_engine: Engine | None, probes: Probes
) -> Method:
    """The method `name`. `probes` maps "draft", "target" to their predictors, "joint" to the decision's.

    `target` needs no draft engine; `draft` needs the target's tokenizer for the counts. UserError when the
    name is unknown or a probe is missing.
    """
    if name not in METHODS:
        raise UserError(f"unknown method '{name}'; known: {', '.join(METHODS)}")
    return METHODS[name](settings, draft_engine, target_engine, probes)


__all__ = [
    "METHODS",
    "NEEDS_PROBES",
    "Answer",
    "JointPredictor",
    "Judge",
    "Method",
    "OnStep",
    "Predictor",
    "Setup",
    "TraceStep",
    "Transcript",
    "build",
]

"""The small world's models in several processes: true semantic probabilities of many contexts, the oracle's answers.

What is found does not depend on the number of processes. It knows nothing of files or of what the draws are for.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Executor
from typing import Any

from tqdm import tqdm

from semspec import engine as engines
from semspec.engine.base import Engine
from semspec.problems import Problem
from semspec.schema import Settings
from semspec.semantics.sampling import ROLES
from semspec.world.oracle import Known, Oracle, answer
from semspec.world.truth import Context, Shares, batches, shares

_loaded: dict[str, Engine] = {}  # of a worker, which serves one pair as long as it lives


def _model(settings: Settings, role: str) -> Engine:
    if role not in _loaded:
        _loaded[role] = engines.load(getattr(settings.models, role), settings.engine.of(role))
        _loaded[role].observe([])
    return _loaded[role]


def _shares(settings: Settings, role: str, contexts: Sequence[Context], n: int) -> list[Shares]:
    return shares(_model(settings, role), contexts, n, settings)


def _answer(settings: Settings, problem: Problem, index: int, n: int, known: Known) -> dict[str, Any]:
    models = {role: _model(settings, role) for role in ROLES}
    oracle = Oracle(**models, n=n, settings=settings, known=known)
    return answer(**models, problem=problem, index=index, oracle=oracle, settings=settings)


def weights(settings: Settings, role: str) -> int:
    """How many weights a model of the Hugging Face engine has; in a worker."""
    model: Any = _model(settings, role)
    return sum(p.numel() for p in model.model.parameters())


def draw(
    pool: Executor, settings: Settings, contexts: Sequence[Context], n: int, title: str
) -> dict[str, list[Shares]]:
    """{role: `shares` of `n` continuations in each context}, with a progress bar."""
    parts = batches(contexts, n)
    with tqdm(total=len(ROLES) * len(contexts), desc=title, unit="context") as bar:
        drawing = {role: [pool.submit(_shares, settings, role, part, n) for part in parts] for role in ROLES}
        found: dict[str, list[Shares]] = {role: [] for role in ROLES}
        for role, futures in drawing.items():
            for part, future in zip(parts, futures, strict=True):
                found[role] += future.result()
                bar.update(len(part))
    return found


def oracle_answers(
    pool: Executor, settings: Settings, problems: Sequence[Problem], n: int, known: Known
) -> list[dict[str, Any]]:
    """Rows of results.jsonl, method "oracle", with a progress bar. known: contexts that were foreseen."""
    own: dict[str, dict[tuple[str, ...], Any]] = {}
    for key, drawn in known.items():
        own.setdefault(key[0], {})[key] = drawn
    futures = [pool.submit(_answer, settings, p, i, n, own.get(p.question, {})) for i, p in enumerate(problems)]
    return [future.result() for future in tqdm(futures, desc="oracle", unit="answer")]

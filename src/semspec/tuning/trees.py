"""The recorded questions of one pair, and methods replayed on them.

A tree is the tapes of all validation questions under one prompt, split and token budget: whatever changes those has a
tree of its own. Knows how to load the models when a tape has a gap and may be extended; knows nothing of the search.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from semspec import decoding, engine, files
from semspec.bench.runner import answer_seed, graded
from semspec.decoding import Answer, Judge, Method, Semantic, Setup
from semspec.decoding.acceptance import Judgement
from semspec.engine.base import Engine, Step
from semspec.errors import UserError
from semspec.planning.cost import ROLES, Cost, Passes, Prices, measure, measured_once
from semspec.problems import Problem, load
from semspec.provenance import ARITHMETIC
from semspec.schema import Settings
from semspec.tuning.replay import FACTS, RecordedEngine
from semspec.tuning.tape import Missing, Tape, key

THRESHOLDS = (0.3, 0.5, 0.7, 0.9)  # of the present rule, recorded beside the two extremes
TOKENS = ("text.system", "text.split", "text.max_step_tokens", "bench.max_tokens")


def questions(settings: Settings) -> list[Problem]:
    """The validation questions of a search: never the test's. `UserError` where a set has none of its own."""
    chosen = settings.tune
    name = chosen.dataset or settings.contexts.dataset
    others = [Path(other).resolve() for other in (settings.contexts.dataset, settings.bench.dataset)]
    if name.endswith(".jsonl") and Path(name).resolve() in others:
        raise UserError(f"{name} holds the training or test questions; name other ones in tune.dataset")
    return load(name, "validation", chosen.questions, settings.seed, settings.contexts.data_dir or None)


class Always:
    """Keeps every step, or none; sees nothing."""

    layers = {"draft": (), "target": ()}  # noqa: RUF012

    def __init__(self, keep: bool) -> None:
        self.a = float(keep)

    def __call__(
        self, written: Sequence[Step], read: Sequence[Step], question: str, said: Sequence[str]
    ) -> list[Judgement]:
        return [Judgement(self.a, 1.0, self.a, False, self.a) for _ in written]


@dataclass(frozen=True)
class Walked:
    """One replayed answer: right or not, modelled seconds, and the answer with its counts."""

    correct: bool
    seconds: float
    answer: Answer


@dataclass
class Tree:
    """The recorded answers to `problems` under the prompt and budget of `settings`.

    pair: gives both loaded models, or None where they may not be asked.
    """

    settings: Settings
    folder: Path
    problems: list[Problem]
    pair: Callable[[], dict[str, Engine] | None]
    tapes: dict[str, Tape] = field(default_factory=dict)
    engines: dict[str, RecordedEngine] = field(default_factory=dict)

    @classmethod
    def of(cls, settings: Settings, root: Path, problems: list[Problem], pair: Any) -> Tree:
        """The tree of these settings in `root`; `UserError` when it is empty and no model may be asked."""
        if settings.bench.temperature:
            raise UserError("a replay needs greedy answers; set bench.temperature to 0")
        tree = cls(settings, root / "data/tune/trees" / _name(settings, root), problems, pair)
        facts = tree.folder / "models.json"
        if not facts.exists():
            models = pair()
            if models is None:
                raise UserError("nothing is recorded for these models yet; set tune.extend to true")
            files.write_json(facts, {role: {k: getattr(m, k) for k in FACTS} for role, m in models.items()})
        for role, known in files.read_json(facts).items():
            tree.engines[role] = RecordedEngine(role, known, tree.model)
        return tree

    def model(self, role: str) -> Engine | None:
        """The loaded model of a role, where it may be asked."""
        return (self.pair() or {}).get(role)

    def method(self, name: str, settings: Settings, probes: dict[str, Any] | None = None) -> Method:
        """A method of the package, on the recorded models, whose drafts are written token by token."""
        plain = settings.exact.model_copy(update={"drafting": "plain"})
        settings = settings.model_copy(update={"exact": plain})
        return decoding.build(name, settings, self.engines["draft"], self.engines["target"], probes or {})

    def judged_by(self, judge: Any, settings: Settings) -> Method:
        """`semantic` with any judge."""
        return Semantic(Setup.of(settings), self.engines["draft"], self.engines["target"], judge, settings.bench.gamma)

    def walk(self, method: Method, problem: Problem, cost: Cost | None) -> Walked:
        """Replay an answer; `Missing` where the tape has a gap and no model may be asked."""
        tape = self.tapes.get(problem.id)
        if tape is None:
            name = files.digest(json.dumps([problem.id, problem.question]))
            tape = self.tapes[problem.id] = Tape.load(self.folder / f"{name}.safetensors")
        for recorded in self.engines.values():
            recorded.start(tape)
        try:
            answer = method.answer(problem.question, answer_seed(self.settings.seed, str(problem.id)))
            correct = tape.value(
                key("grade", "correct", answer.text, problem.answer),
                lambda: bool(graded(answer.text, problem, None).correct),
            )
        finally:
            tape.save()
        work: dict[str, Passes] = {role: recorded.passes for role, recorded in self.engines.items()}
        if cost is None:
            return Walked(correct, 0.0, answer)
        done, wanted = _done(method, work), decoding.wanted(method.name)
        return Walked(correct, cost.seconds(done, wanted, answer.offered), answer)


def _done(method: Method, work: dict[str, Passes]) -> dict[str, Passes]:
    """The work that a method really does: plain methods ask one model only."""
    return {method.name: work[method.name]} if method.name in ROLES else work


def _name(settings: Settings, root: Path) -> str:
    """Made of everything that a greedy step depends on, but the question."""
    return files.digest(json.dumps([described(settings, root), [_at(settings, n) for n in TOKENS]], sort_keys=True))


def _at(settings: Settings, dotted: str) -> Any:
    section, name = dotted.split(".")
    return getattr(getattr(settings, section), name)


def described(settings: Settings, root: Path) -> dict[str, Any]:
    """The pair, and how each of the two is run."""
    found: dict[str, Any] = {"arithmetic": ARITHMETIC}
    for role in ROLES:
        way = settings.engine.of(role)
        run = way.model_dump(exclude={"draft", "target", "batch_rows"})
        run |= {"weights": engine.number_format(way), "device": engine.resolve(way.weights, way.device)[1]}
        found[role] = {"model": files.read_json(root / f"data/models/{role}.json"), "engine": run}
    return found


def loader(settings: Settings) -> Callable[[], dict[str, Engine] | None]:
    """Loads both models when first called, and never where `tune.extend` is off."""
    held: dict[str, Engine] = {}

    def pair() -> dict[str, Engine] | None:
        if not settings.tune.extend:
            return None
        if not held:
            trust = settings.models.trust_remote_code
            held.update({r: engine.load(getattr(settings.models, r), settings.engine.of(r), trust) for r in ROLES})
        return held

    return pair


@dataclass(frozen=True)
class Outcome:
    """A configuration on all validation questions. missing: share of the questions that left the tree."""

    pass_at_1: float
    latency_s: float
    missing: float
    target_ratio: float
    acceptance_rate: float


def outcome(tree: Tree, method: Method, cost: Cost, tick: Callable[[], None] = lambda: None) -> Outcome:
    """Replay a method on every question."""
    walks: list[Walked] = []
    for problem in tree.problems:
        with suppress(Missing):
            walks.append(tree.walk(method, problem, cost))
        tick()
    if not walks:
        return Outcome(0.0, 0.0, 1.0, 0.0, 0.0)
    answers = [w.answer for w in walks]
    return Outcome(
        float(np.mean([w.correct for w in walks])),
        float(np.mean([w.seconds for w in walks])),
        1 - len(walks) / len(tree.problems),
        sum(a.target_tokens for a in answers) / max(1, sum(a.output_tokens for a in answers)),
        sum(a.accepted for a in answers) / max(1, sum(a.offered for a in answers)),
    )


def record(tree: Tree, settings: Settings, probes: dict[str, Any], tick: Callable[[str], None]) -> None:
    """Fill a tree with what a search will ask for first: every step kept, none kept, the present rule between."""
    methods: dict[str, Method] = {
        "every step kept": tree.judged_by(Always(True), settings),
        "none kept": tree.judged_by(Always(False), settings),
        "draft": tree.method("draft", settings),
        "target": tree.method("target", settings),
    }
    for threshold in THRESHOLDS:
        decide = settings.decide.model_copy(update={"threshold": threshold})
        judge = Judge(probes["draft"], probes["target"], probes.get("joint"), decide)
        methods[f"threshold {threshold}"] = tree.judged_by(judge, settings)
    for name, method in methods.items():
        for problem in tree.problems:
            tree.walk(method, problem, None)
            tick(name)


def price(tree: Tree, settings: Settings, root: Path, probes: dict[str, Any]) -> Cost:
    """The pair's cost on this machine, measured once; `UserError` when it isn't yet and no model may be asked."""
    layers = {role: list(probes[role].layers) if role in probes else None for role in ROLES}
    answer = settings.bench.max_tokens

    def time_it() -> Cost:
        models = tree.pair()
        if models is None:
            raise UserError("the models' speed is not measured yet; set tune.extend to true")
        few = tree.problems[:6]
        prices: dict[str, Prices] = {}
        for role, model in models.items():
            prompts = [model.chat(p.question, settings.text.system) for p in few]
            prices[role] = measure(model, prompts, layers=layers[role], answer=answer)
            model.observe(None)
        judge = Judge(probes["draft"], probes["target"], probes.get("joint"), settings.decide)
        answers = [tree.walk(tree.judged_by(judge, settings), p, None).answer for p in few]
        judged = sum(a.offered for a in answers)
        judge_s = sum(a.phases["score"] for a in answers) / max(1, judged)
        return Cost(prices["draft"], prices["target"], judge_s)

    return measured_once(root, described(settings, root) | {"layers": layers, "answer": answer}, time_it)

"""Which engine could run which model here, how fast each is, and the pairs that follow.

Loads one model at a time, times it and lets it go. Knows engines and curves; knows nothing of what a pair gains.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product

from semspec import engine
from semspec.engine.base import Engine, Wanted
from semspec.errors import UserError
from semspec.models import check_name
from semspec.planning.cost import QUESTIONS, Curve, Prices, measure
from semspec.planning.gain import Pair
from semspec.probe import features
from semspec.problems import Problem, load
from semspec.schema import Engine as EngineSettings
from semspec.schema import Settings

KINDS = ("transformers", "llamacpp")


@dataclass(frozen=True)
class Timed:
    """One model on one engine, timed. tokens: how many it makes of the sample text."""

    role: str
    model: str
    engine: str
    prices: Prices
    tokens: int
    vocab_id: str

    @property
    def label(self) -> str:
        return f"{self.model} on {self.engine}"

    @property
    def alone(self) -> float:
        """Seconds of a token that no probe looks at, as the model by itself writes it."""
        return self.prices.followed.write

    def curve(self, wanted: Wanted) -> Curve:
        return self.prices.of(self.role, wanted)


@dataclass(frozen=True)
class Placement:
    """A draft and a target, each on an engine. base: seconds a token of the target alone, on its fastest engine."""

    draft: Timed
    target: Timed
    base: float

    @property
    def shares_vocabulary(self) -> bool:
        return self.draft.vocab_id == self.target.vocab_id

    def pair(self, wanted: Wanted = "judged") -> Pair:
        """The two in a method that wants so much of what the target reads."""
        rate = self.draft.tokens / self.target.tokens
        return Pair(self.draft.curve(wanted), self.target.curve(wanted), self.base, rate)


def can_run(name: str, settings: EngineSettings) -> bool:
    """Is that engine installed, and has it a file of this model?"""
    try:
        engine.check(name, settings)
    except UserError:
        return False
    return True


def titled(settings: EngineSettings) -> str:
    """`transformers int8`, `llamacpp gguf`, `sglang`."""
    return " ".join(dict.fromkeys((settings.kind, engine.number_format(settings))))


def candidates(settings: Settings, drafts: Sequence[str]) -> list[tuple[str, str, EngineSettings]]:
    """(role, model, engine) of everything that can run here; `UserError` where a model can't run at all."""
    found = []
    for role, name in [("target", settings.models.target), *(("draft", d) for d in drafts)]:
        way = settings.engine.of(role)
        check_name(name, weights=way.kind != "sglang")
        # what a server runs is not to be fetched for this machine
        kinds = (way.kind,) if way.kind == "sglang" else KINDS
        able = [w for w in (way.model_copy(update={"kind": kind}) for kind in kinds) if can_run(name, w)]
        if not able:
            engine.check(name, way)
        found += [(role, name, w) for w in able]
    return found


def sample_text(settings: Settings) -> list[Problem]:
    """The questions that models are timed on."""
    chosen = settings.contexts
    return load(chosen.dataset, "validation", QUESTIONS, settings.seed, chosen.data_dir or None)


def time_all(settings: Settings, drafts: Sequence[str], tick: Callable[[str], None]) -> list[Timed]:
    """Every candidate's curve, a model at a time."""
    problems = sample_text(settings)
    return [time_one(settings, *c, problems, tick) for c in candidates(settings, drafts)]


def time_one(
    settings: Settings,
    role: str,
    name: str,
    way: EngineSettings,
    problems: Sequence[Problem],
    tick: Callable[[str], None],
) -> Timed:
    """Load a model, time it on prompts of `problems`, let it go."""
    model: Engine = engine.load(name, way, settings.models.trust_remote_code)
    what = f"{name} on {titled(way)}"
    prompts = [model.chat(p.question, settings.text.system) for p in problems]
    own = name == getattr(settings.models, role)  # another draft may lack the layers that are named
    seen = features.probed_layers(settings.train, role, model.n_layers) if own else None
    prices = measure(model, prompts, lambda: tick(what), seen, settings.bench.max_tokens)
    tokens = len(model.encode("\n\n".join(p.question for p in problems)))
    timed = Timed(role, name, titled(way), prices, tokens, model.vocab_id)
    del model
    gc.collect()
    return timed


def placements(timed: Sequence[Timed]) -> list[Placement]:
    """Every draft with every target. What all are compared with is the target on its fastest engine, alone."""
    targets = [t for t in timed if t.role == "target"]
    base = min(t.alone for t in targets)
    return [Placement(d, t, base) for d, t in product([t for t in timed if t.role == "draft"], targets)]

"""The best configurations for real: the same questions, real models, real seconds, several seeds.

They take turns with the target, question by question, so that a machine whose load drifts slows all alike. Says how
well the replay's order holds. Knows the bench's runner; knows nothing of the search's storage.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from semspec import decoding, files
from semspec.bench import runner
from semspec.probe.evaluation import spearman
from semspec.tuning.search import Found, Searcher, changed, combined

TARGET = "target"
COMPARED = ("pass_at_1", "latency_s", "combined")


@dataclass(frozen=True)
class Live:
    """One configuration for real: means over the seeds, and each seed's values. number: of the trial."""

    number: int
    pass_at_1: float
    latency_s: float
    ratio: float
    combined: float
    seeds: dict[str, list[float]]


def measure(
    searcher: Searcher,
    chosen: list[Found],
    out: Path,
    progress: Callable[[int, int, dict[str, Any]], None] | None = None,
) -> list[Live]:
    """Run `chosen` and the target on the search's questions, once for each of `tune.live_seeds` seeds.

    Killed, it goes on where it stopped: finished seeds are read again from `out`.
    """
    settings, models = searcher.settings, searcher.pair()
    if models is None:
        from semspec.errors import UserError

        raise UserError("a live run needs the models; set tune.extend to true")
    engines = models["draft"], models["target"]
    methods = {TARGET: decoding.build(TARGET, settings, *engines, {})}
    for trial in chosen:
        own = changed(settings, trial.overrides)
        methods[str(trial.number)] = decoding.build("semantic", own, *engines, searcher.probes(own, whole=True))
    identity = files.digest(json.dumps([[t.number, t.overrides] for t in chosen], sort_keys=True))
    values: dict[str, list[dict[str, float]]] = {name: [] for name in methods}
    for i in range(settings.tune.live_seeds):
        seed = changed(settings, {"seed": settings.seed + i, "bench.repeats": 1})
        place = out / f"{identity}-{seed.seed}"
        if (place / "summary.json").exists():
            summary = files.read_json(place / "summary.json")
        else:
            summary = runner.run(seed, methods, searcher.problems, place, progress, identity=identity)
        for name, found in summary["methods"].items():
            values[name].append({k: found[k] for k in ("pass_at_1", "latency_s")})
    base = float(np.mean([v["latency_s"] for v in values[TARGET]]))
    return [_one(t.number, values[str(t.number)], base, settings.tune.price) for t in chosen]


def _one(number: int, values: list[dict[str, float]], base: float, price: float) -> Live:
    right, seconds = ([v[k] for v in values] for k in ("pass_at_1", "latency_s"))
    mean, ratio = float(np.mean(right)), float(np.mean(seconds)) / base
    seeds = {"pass_at_1": right, "latency_s": seconds}
    return Live(number, mean, float(np.mean(seconds)), ratio, combined(mean, ratio, price), seeds)


def agreement(chosen: list[Found], live: list[Live]) -> dict[str, float]:
    """Spearman between replay and live over the configurations, for each of `COMPARED`."""
    replayed = {t.number: asdict(t) for t in chosen}
    out: dict[str, float] = {}
    for name in COMPARED:
        pairs = [(replayed[v.number][name], getattr(v, name)) for v in live]
        a, b = (np.array(side, float) for side in zip(*pairs, strict=True))
        out[name] = spearman(a, b)
    return out


def order(live: list[Live], limit: float | None) -> list[Live]:
    """Best first, by what was measured; without those beyond `limit` times the target's latency."""
    within = [v for v in live if limit is None or v.ratio <= limit]
    return sorted(within, key=lambda v: (-v.combined, v.number))

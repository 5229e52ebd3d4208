"""What can be known to be wrong with settings before any work is done: names, layers, the device.

Called before params.yaml is changed, so that a mistake leaves no trace. It fetches and loads nothing, and knows nothing
of what stages do with the settings.
"""

from __future__ import annotations

import importlib.util

from semspec import engine
from semspec.errors import UserError
from semspec.models import check_name, layers
from semspec.problems import check_apart, check_dataset
from semspec.schema import Settings


def check(settings: Settings) -> None:
    """Raises `UserError` for the first thing that could not work."""
    from semspec.bench.command import plain
    from semspec.decoding import NEEDS_PROBES
    from semspec.probe.features import choose_layers
    from semspec.semantics import entailment

    check_dataset(settings.contexts.dataset, "train")
    check_dataset(settings.bench.dataset, "test")
    if NEEDS_PROBES & plain([*settings.bench.methods, *settings.bench.variants]):
        check_apart(settings.contexts.dataset, settings.bench.dataset)
    for role in ("draft", "target", "encoder"):
        check_name(getattr(settings.models, role), "encoder" if role == "encoder" else "language model")
    entailment.check(settings.cluster)
    if settings.decide.rule == "joint" and settings.cluster.labels == "own":
        raise UserError(
            "with cluster.labels: own, decide.rule: joint has nothing to learn from; set the rule to ratio or p"
        )
    runner = settings.scale.runner
    if runner != "threads" and importlib.util.find_spec(f"prefect_{runner}") is None:
        raise UserError(f"scale.runner is '{runner}', which is not installed; pip install -e '.[{runner}]'")
    for role in ("draft", "target"):
        own = settings.engine.of(role)
        there = layers(getattr(settings.models, role))
        if there is not None and settings.train.features != "logprob":
            choose_layers(settings.train.layers_of(role), there)
        engine.check(getattr(settings.models, role), own)
        if own.kind == "transformers" and own.device.startswith("cuda"):
            import torch

            if not torch.cuda.is_available():
                raise UserError(f"engine.device is '{own.device}' but PyTorch sees no GPU; set it to auto")

"""What can be known to be wrong with settings before any work is done: names, layers, the device.

Called before params.yaml is changed, so that a mistake leaves no trace. It fetches and loads nothing, and knows nothing
of what stages do with the settings.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

from semspec import config, engine
from semspec.errors import UserError
from semspec.models import CATALOGUE, check_name, layers
from semspec.problems import check_apart, check_dataset
from semspec.schema import Scale, Settings


def check(settings: Settings) -> None:
    """Raises `UserError` for the first thing that could not work."""
    from semspec.bench.command import plain
    from semspec.decoding import NEEDS_PROBES
    from semspec.probe.features import choose_layers
    from semspec.semantics import entailment

    check_dataset(settings.contexts.dataset, "train", settings.contexts.data_dir or None)
    check_dataset(settings.bench.dataset, "test")
    if NEEDS_PROBES & plain([*settings.bench.methods, *settings.bench.variants]):
        check_apart(settings.contexts.dataset, settings.bench.dataset)
    check_name(settings.models.encoder, "encoder")
    if settings.cluster.entailment == "nli":
        _check_nli(settings.cluster.nli_model)
    entailment.check(settings.cluster)
    _check_probes(settings)
    _check_drafting(settings)
    runner = settings.scale.runner
    if runner != "threads" and importlib.util.find_spec(f"prefect_{runner}") is None:
        raise UserError(f"scale.runner is '{runner}', which is not installed; pip install -e '.[{runner}]'")
    _check_gpus(settings.scale)
    for role in ("draft", "target"):
        own = settings.engine.of(role)
        check_name(getattr(settings.models, role), weights=own.kind != "sglang")  # its server has them
        there = layers(getattr(settings.models, role))
        if there is not None and settings.train.features != "logprob":
            choose_layers(settings.train.layers_of(role), there)
        engine.check(getattr(settings.models, role), own)
        if own.kind == "transformers" and own.device.startswith("cuda"):
            import torch

            if not torch.cuda.is_available():
                raise UserError(f"engine.device is '{own.device}' but PyTorch sees no GPU; set it to auto")


def _check_nli(name: str) -> None:
    if name in CATALOGUE:
        raise UserError(f"cluster.nli_model is '{name}', which tells no entailment; name a classifier such as MNLI's")
    check_name(name, "encoder")


def _check_probes(settings: Settings) -> None:
    """Those that the methods will ask for: which the stage `train` can't make, or another project should have made."""
    from semspec.bench.command import cross_probes

    chosen = {name: config.variant(settings, name) for name in (*settings.bench.methods, *settings.bench.variants)}
    rules = {"decide.rule: joint": settings.decide.rule}
    rules |= {name: own.decide.rule for name, (method, own) in chosen.items() if method != "semantic_cross_domain"}
    joint = [place for place, rule in rules.items() if rule == "joint"]
    if settings.cluster.labels == "own" and joint:
        raise UserError(f"with cluster.labels: own, {joint[0]} has nothing to learn from; set the rule to ratio or p")
    if "semantic_cross_domain" in {method for method, _ in chosen.values()}:
        cross_probes(settings, Path("."))


def _check_drafting(settings: Settings) -> None:
    """`UserError` where a method's draft should look up and sits on an engine that can't pool what it verifies."""
    from semspec.decoding import drafting

    for name in (*settings.bench.methods, *settings.bench.variants):
        method, own = config.variant(settings, name)
        if method.startswith("semantic"):
            drafting(own)


def _gpus() -> int:
    """How many GPUs the processes of this machine see."""
    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    if named is not None:
        return len([gpu for gpu in named.split(",") if gpu.strip() not in ("", "-1")])
    asked = [sys.executable, "-c", "import torch; print(torch.cuda.device_count())"]  # it is not for us to load
    found = subprocess.run(asked, capture_output=True, text=True, check=False).stdout.split()
    return int(found[-1]) if found else 0


def _check_gpus(scale: Scale) -> None:
    """The parts share the GPUs out: where there are too few the last would see none, and work on the CPU."""
    if scale.runner != "threads" or scale.workers == 1 or not scale.gpus:
        return
    needed, there = scale.workers * scale.gpus, _gpus()
    if needed > there:
        raise UserError(
            f"scale.workers={scale.workers} with scale.gpus={scale.gpus} needs {needed} GPUs and {there} can be seen "
            "here; set fewer workers, or scale.gpus=0, with which all see what is there"
        )

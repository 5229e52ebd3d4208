"""Engines: what runs a language model. `load` is the one door; see base.py for the interface."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from semspec.config import Engine as EngineSettings
    from semspec.engine.base import Engine


def resolve(weights: str, device: str) -> tuple[str, str]:
    """Number format and device, with `auto` settled for this machine: int8 on a CPU, bf16 on a GPU."""
    import torch

    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    if weights == "auto":
        weights = "int8" if device.split(":")[0] == "cpu" else "bf16"
    return weights, device


def load(name: str, settings: EngineSettings, trust_remote_code: bool = False) -> Engine:
    """The engine for a catalogue name, a hub id or a local folder; fetches the weights when they are missing."""
    from semspec.engine.transformers import load as load_transformers
    from semspec.models import ensure

    folder = ensure(name, trust_remote_code)
    return load_transformers(folder, name, settings.weights, settings.device, settings.threads, trust_remote_code)

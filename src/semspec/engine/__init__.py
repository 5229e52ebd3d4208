"""Engines: what runs a language model. `load` is the one door; see base.py for the interface."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from semspec.config import Engine as EngineSettings
    from semspec.engine.base import Engine


def load(name: str, settings: EngineSettings, trust_remote_code: bool = False) -> Engine:
    """The engine for a catalogue name, a hub id or a local folder; fetches the weights when they are missing."""
    from semspec.engine.transformers import load as load_transformers
    from semspec.models import ensure

    folder = ensure(name, trust_remote_code)
    return load_transformers(folder, name, settings.weights, settings.device, settings.threads, trust_remote_code)

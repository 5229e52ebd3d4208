"""Engines: what runs a language model. `load` is the one door; see base.py for the interface."""

from __future__ import annotations

import importlib.util
import os
from typing import TYPE_CHECKING

from semspec.errors import UserError

if TYPE_CHECKING:
    from semspec.engine.base import Engine
    from semspec.schema import Engine as EngineSettings


def cores() -> int:
    """CPU cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def has_int8() -> bool:
    """Whether PyTorch has the kernels of int8 layers here: FBGEMM's, which are for x86 alone."""
    import torch

    return "fbgemm" in torch.backends.quantized.supported_engines


def resolve(weights: str, device: str) -> tuple[str, str]:
    """Number format and device, with `auto` settled for this machine: int8 (or fp32) on a CPU, bf16 on a GPU."""
    if device == "auto":
        import torch

        device = "cuda" if torch.cuda.is_available() else "cpu"
    if weights == "auto":
        weights = "bf16" if device.split(":")[0] != "cpu" else "int8" if has_int8() else "fp32"
    return weights, device


def number_format(settings: EngineSettings) -> str:
    """fp32, bf16 or int8; `gguf` where llama.cpp runs the file's own format, `sglang` where a server has its own."""
    if settings.kind == "transformers":
        # of `auto` alone the machine is asked, which takes importing PyTorch
        return settings.weights if settings.weights != "auto" else resolve("auto", settings.device)[0]
    return "gguf" if settings.kind == "llamacpp" else "sglang"


def uncommon(settings: EngineSettings) -> list[str]:
    """The models whose `auto` is not int8 here, with their format: a part of the keys of what they made, which else
    would not tell it from that of another machine. For int8 the keys stay as they are."""
    own = {role: settings.of(role) for role in ("draft", "target")}
    formats = {role: number_format(s) for role, s in own.items() if s.kind == "transformers" and s.weights == "auto"}
    return [role if kind == "bf16" else f"{role} {kind}" for role, kind in formats.items() if kind != "int8"]


def faster(device: str = "auto") -> str:
    """How to get the engine that needs a compiler, in a line; empty where it is there, or the device is a GPU."""
    if importlib.util.find_spec("llama_cpp") is not None or resolve("auto", device)[1] != "cpu":
        return ""
    return "llama.cpp is not installed; `pip install -e '.[llamacpp]' && semspec plan` tells whether it is faster here"


def check(name: str, settings: EngineSettings) -> None:
    """`UserError` when this engine can't run a model of that name; fetches and loads nothing."""
    from semspec.models import gguf

    if settings.kind == "llamacpp":
        if importlib.util.find_spec("llama_cpp") is None:
            raise UserError(
                "engine.kind is llamacpp but llama-cpp-python is not installed; run `pip install -e '.[llamacpp]'` "
                "(it needs cmake and a C++ compiler), or set it to transformers"
            )
        gguf(name)
    elif name.endswith(".gguf"):
        raise UserError(f"'{name}' is a GGUF file, which engine.kind {settings.kind} does not load; set it to llamacpp")


def load(name: str, settings: EngineSettings, trust_remote_code: bool = False) -> Engine:
    """The engine for a catalogue name, a hub id, a local folder or a GGUF file; fetches the weights when missing.

    settings: those of one role, `settings.engine.of(role)`, where the roles differ.
    """
    from semspec.models import ensure, gguf

    check(name, settings)
    found = ensure(name, trust_remote_code, weights=settings.kind != "sglang")
    if settings.kind == "llamacpp":
        from semspec.engine.llamacpp import load as load_llamacpp

        return load_llamacpp(gguf(name), found if found.is_dir() else found.parent, name, settings.threads)
    if settings.kind == "sglang":
        from semspec.engine.sglang import load as load_sglang

        assert settings.url, "of one role"
        return load_sglang(found, name, settings.url, trust_remote_code)
    from semspec.engine.transformers import load as load_transformers

    return load_transformers(found, name, settings.weights, settings.device, settings.threads, trust_remote_code)

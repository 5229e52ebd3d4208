"""Where a result came from: code, package versions, parameters, machine.

Written into results and MLflow runs. Names no host, user or path, and never fails: what can't be found out is
None. It knows nothing of what the result is.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

from semspec import schema

if TYPE_CHECKING:
    from semspec.schema import Settings

PACKAGES = (
    "semspec", "torch", "transformers", "tokenizers", "numpy", "scikit-learn", "safetensors", "math-verify",
    "prefect", "mlflow", "dvc",
)  # fmt: skip
# A part of the keys of half-made results, so that what an older arithmetic made is not gone on with. Raise it whenever
# the same parameters would give other answers or samples: another kernel, rounding, random draw, prompt or loop.
ARITHMETIC = 2
# Rewritten by every run or benchmark, and recorded on their own: no sign of changed code.
_STATE_FILES = (":!params.yaml", ":!dvc.lock", ":/!benchmarks/measured", ":/!benchmarks/RESULTS.md")


def _git(*args: str) -> str | None:
    try:
        done = subprocess.run(["git", *args], capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def code() -> dict[str, Any]:
    """`{"commit": hex | None, "dirty": bool | None}` of the repository around the current folder."""
    commit = _git("rev-parse", "--verify", "HEAD")
    changes = _git("status", "--porcelain", "--untracked-files=no", "--", ":/", *_STATE_FILES)
    return {"commit": commit, "dirty": None if commit is None or changes is None else bool(changes)}


def version(package: str) -> str | None:
    """The installed version of a package."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def versions() -> dict[str, str | None]:
    """Installed version of each package that can change a result."""
    return {name: version(name) for name in PACKAGES}


def params_sha256(settings: Settings) -> str:
    """SHA-256 of every parameter that a stage reads (`profile` is a label; the others come after, or change none)."""
    data = settings.model_dump(mode="json", exclude=schema.ASIDE)
    return hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()


def _cpu() -> str | None:
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or None


def _gpu() -> str | None:
    torch = sys.modules.get("torch")  # a run without torch loaded used no GPU
    if torch is None or not torch.cuda.is_available():
        return None
    return str(torch.cuda.get_device_name(0))


def machine() -> dict[str, Any]:
    """CPU model, usable cores, memory in GiB, GPU name."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    try:
        memory = round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1)
    except (AttributeError, OSError, ValueError):
        memory = None
    return {"cpu": _cpu(), "cores": cores, "memory_gib": memory, "gpu": _gpu()}


def place() -> str:
    """What a measured time depends on, in a line: `GPU or CPU model, usable cores, commit`."""
    here, made = machine(), code()
    changed = " with changes" if made["dirty"] else ""
    return f"{here['gpu'] or here['cpu']}, cores: {here['cores']}, commit {(made['commit'] or '?')[:10]}{changed}"


def collect(settings: Settings, **extra: Any) -> dict[str, Any]:
    """The provenance of a result made with `settings`; `extra` entries are added as they are."""
    parts: dict[str, Any] = {
        "code": code,
        "packages": versions,
        "params_sha256": lambda: params_sha256(settings),
        "machine": machine,
        "python": platform.python_version,
        "platform": lambda: f"{platform.system()} {platform.machine()}",
    }
    out: dict[str, Any] = {}
    for name, find in parts.items():
        try:
            out[name] = find()
        except Exception:  # a result is worth more than a line about where it was made
            out[name] = None
    return out | {name: getattr(settings, name, None) for name in ("profile", "seed")} | extra

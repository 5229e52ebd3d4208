"""`semspec doctor`: what this machine has, whether the models are here, and whether the project folder is whole.

Only looks; changes nothing and downloads nothing.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from semspec import config
from semspec.errors import UserError

PACKAGES = ("torch", "transformers", "prefect", "dvc", "mlflow", "scikit-learn")


def _packages() -> tuple[bool, str]:
    found = []
    for name in PACKAGES:
        try:
            found.append(f"{name} {version(name)}")
        except PackageNotFoundError:
            return False, f"{name} is missing; install with `pip install -e .`"
    return True, ", ".join(found)


def _machine() -> tuple[bool, str]:
    import torch

    gpu = torch.cuda.get_device_name(0) if torch.cuda.is_available() else "no GPU"
    isa = torch.backends.cpu.get_cpu_capability()
    return True, f"Python {sys.version.split()[0]}, {os.cpu_count()} cores ({isa}), {gpu}"


def _params(root: Path) -> tuple[bool, str]:
    try:
        settings = config.load(root)
    except UserError as e:
        return False, str(e)
    return True, f"profile {settings.profile}"


def _models(root: Path) -> tuple[bool, str]:
    from semspec.models import CATALOGUE, home, installed

    try:
        chosen = config.load(root).models
    except UserError:
        return False, "unknown until params.yaml is mended"
    names = [chosen.encoder, chosen.draft, chosen.target]
    missing = [n for n in names if n in CATALOGUE and not installed(n)]
    if missing:
        return (
            False,
            f"not fetched yet: {', '.join(missing)}; run `semspec models pull` (or `semspec run` does)",
        )
    return True, f"{', '.join(names)} under {home()}"


def _engines() -> tuple[bool, str]:
    from semspec import engine

    weights, device = engine.resolve("auto", "auto")
    return True, f"transformers ({weights} on {device}); {engine.faster() or 'llamacpp'}"


def _disk(root: Path) -> tuple[bool, str]:
    free = shutil.disk_usage(root).free / 1e9
    return free > 15, f"{free:.0f} GB free here" + ("" if free > 15 else "; the default models need 15 GB")


def _repository(root: Path) -> tuple[bool, str]:
    missing = [n for n in ("dvc.yaml", ".dvc", "flows/pipeline.py") if not (root / n).exists()]
    if missing:
        return False, f"{', '.join(missing)} missing; run in the cloned repository"
    on_path = shutil.which("semspec")
    return bool(on_path), "dvc.yaml, .dvc, flows" if on_path else "`semspec` is not on PATH; activate the environment"


def examine(root: Path, as_json: bool) -> int:
    """Print the findings; 0 when all is well, 2 when something is for the user to mend."""
    checks = {
        "packages": _packages(),
        "machine": _machine(),
        "params": _params(root),
        "models": _models(root),
        "engines": _engines(),
        "disk": _disk(root),
        "project": _repository(root),
    }
    if as_json:
        print(json.dumps({n: {"ok": ok, "found": text} for n, (ok, text) in checks.items()}))
    else:
        for name, (ok, text) in checks.items():
            print(f"{'ok  ' if ok else 'MEND'} {name:10}{text}")
    return 0 if all(ok for ok, _ in checks.values()) else 2

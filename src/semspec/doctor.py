"""`semspec doctor`: what this machine has, whether the models are here, and whether the project folder is whole.

Only looks; changes nothing and downloads nothing.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
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
    known = f"Python {sys.version.split()[0]}, {os.cpu_count()} cores"
    if find_spec("torch") is None:
        return False, f"{known}; torch is missing, which looks for the rest"
    import torch

    gpu = torch.cuda.get_device_name(0) if torch.cuda.is_available() else "no GPU"
    isa = torch.backends.cpu.get_cpu_capability()
    return True, f"{known} ({isa}), {gpu}"


def _params(root: Path) -> tuple[bool, str]:
    try:
        settings = config.load(root)
    except UserError as e:
        return False, str(e)
    return True, f"profile {settings.profile}"


def _chosen(root: Path) -> tuple[list[str], list[str]]:
    """The models of params.yaml, and which of them are still to be fetched; `UserError` where it can't be read."""
    from semspec.models import CATALOGUE, installed

    chosen = config.load(root).models
    names = [chosen.encoder, chosen.draft, chosen.target]
    return names, [n for n in names if n in CATALOGUE and not installed(n)]


def _models(root: Path) -> tuple[bool, str]:
    from semspec.models import home

    try:
        names, missing = _chosen(root)
    except UserError:
        return False, "unknown until params.yaml is mended"
    if missing:
        return (
            False,
            f"not fetched yet: {', '.join(missing)}; run `semspec models pull` (or `semspec run` does)",
        )
    return True, f"{', '.join(names)} under {home()}"


def _engines() -> tuple[bool, str]:
    if find_spec("torch") is None:
        return False, "none without torch"
    from semspec import engine

    weights, device = engine.resolve("auto", "auto")
    return True, f"transformers ({weights} on {device}); {engine.faster() or 'llamacpp'}"


def _disk(root: Path) -> tuple[bool, str]:
    from semspec.models import home

    try:
        missing = bool(_chosen(root)[1])
    except UserError:
        missing = True
    # while models are to come, where they go; it may not be there yet
    place = (
        next(p for p in (home().absolute(), *home().absolute().parents) if p.exists()) if missing else root.resolve()
    )
    need = 15 if missing else 1
    free = shutil.disk_usage(place).free / 1e9
    return free > need, f"{free:.0f} GB free in {place}" + ("" if free > need else f"; make room for {need} GB")


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

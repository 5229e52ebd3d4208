"""MLflow: the record of runs and the registry of probes.

Reads the files that the stages write and copies them into MLflow; no stage depends on it. Both functions are
idempotent (the same files make one run and one version) and best-effort: a failure is one warning line on
stderr.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from semspec.schema import Settings
    from semspec.tracking.registry import Outcome


def _warn(what: str, error: Exception) -> None:
    lines = str(error).strip().splitlines()
    reason = lines[0] if lines else type(error).__name__
    print(f"warning: {what} in MLflow: {reason}", file=sys.stderr)


def log_run(root: Path, settings: Settings) -> str | None:
    """Id of the MLflow run that records the present files, made if need be; None when it can't be made."""
    try:
        from semspec.tracking.mlflow_log import log

        return log(root, settings)
    except Exception as e:  # a record must never cost a result
        _warn("the run is not recorded", e)
        return None


def register(root: Path, settings: Settings, run_id: str) -> Outcome | None:
    """Register the present probes, and promote them if the gate lets them pass; None when it can't be done."""
    try:
        from semspec.tracking.registry import Registry

        return Registry(root, settings).register(run_id)
    except Exception as e:
        _warn("the probes are not registered", e)
        return None


__all__ = ["log_run", "register"]

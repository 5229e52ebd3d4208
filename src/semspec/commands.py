"""Running `semspec` and `dvc` as processes of their own whose mistakes come back as exceptions.

Knows how they say what went wrong; knows nothing of stages, graphs or Prefect.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from semspec.errors import UserError
from semspec.process import PARENT, run_group

Log = Callable[[str], None]
_PERCENT = re.compile(r"(\d+)%\|")
TRACKED = "SEMSPEC_TRACKED"  # in a stage's environment: whoever started it records in MLflow afterwards
BAR_S = 2  # seconds between two states of a progress bar that nobody watches on a terminal


class StageFailed(Exception):
    """A command broke in a way that is not the user's mistake; its own output says how. alone: runs just that part."""

    def __init__(self, message: str, alone: str = "") -> None:
        super().__init__(message)
        self.alone = alone


def environment(**more: str) -> dict[str, str]:
    """The environment of a command: `semspec` and `dvc` of this Python come first on PATH."""
    here = str(Path(sys.executable).parent)
    path = os.pathsep.join([here, os.environ.get("PATH", "")])
    return os.environ | {"PATH": path, "DVC_NO_ANALYTICS": "true"} | more


def fraction(bar: str) -> float | None:
    """How far a progress bar is, 0 to 1; None when it does not say."""
    found = _PERCENT.search(bar)
    return int(found.group(1)) / 100 if found else None


def run_command(
    command: Sequence[str],
    root: Path,
    log: Log | None = None,
    live: bool = True,
    bar: Log | None = None,
    keep: Callable[[str], bool] = lambda line: True,
    env: Mapping[str, str] | None = None,
) -> tuple[int, list[str]]:
    """Run it in `root`, to end with us; its exit code and its error lines. The rest is as in `process.run_group`.

    Error lines are not shown: whoever gets them says them once.
    """
    held: list[str] = []

    def shown(line: str) -> bool:
        if line.startswith(("error: ", "ERROR: ")):
            held.append(line.strip())
            return False
        return keep(line)

    more = {PARENT: str(os.getpid())} | ({} if live else {"TQDM_MININTERVAL": str(BAR_S)}) | dict(env or {})
    return run_group(command, root, environment(**more), shown, log, live, bar), held


def semspec(
    args: Sequence[str],
    root: Path,
    log: Log | None = None,
    live: bool = False,
    bar: Log | None = None,
    env: Mapping[str, str] | None = None,
) -> None:
    """Run `semspec ARGS`. `UserError` (its own line) for the user's mistake, else `StageFailed`."""
    code, held = run_command(["semspec", *args], root, log, live, bar, env=env)
    said = held[-1].removeprefix("error: ") if held else ""
    if code == 2 and said:
        raise UserError(said)
    if code != 0:
        raise StageFailed(f"`semspec {args[0]}` failed (exit code {code}){': ' + said if said else ''}")

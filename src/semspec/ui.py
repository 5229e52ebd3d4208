"""What a flow shows in Prefect's UI: how far it is, tables, the report's address, one line for a user's mistake.

And which runs began in this folder, so that those whose process is gone are not shown at work for ever.

Prefect is imported inside the functions. Knows nothing of stages.
"""

from __future__ import annotations

import contextlib
import math
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from uuid import UUID

from semspec.commands import BAR_S, StageFailed, fraction
from semspec.errors import UserError
from semspec.process import end_with_parent

BEGUN = Path(".dvc/tmp/flow_runs")  # ids of the runs that began in this folder, for `lost`
RESULTS_URL = "SEMSPEC_RESULTS_URL"  # where `semspec deploy` shows the folder results/, for its flows


def served() -> bool:
    """Was this run started from a deployment (the UI), so that nobody watches the terminal?"""
    from prefect.runtime import deployment

    return deployment.id is not None


def carry_out(root: Path, work: Callable[[], None]) -> Any:
    """The body of every flow: do its work in the project `root`; a mistake ends it as `failed` says."""
    if served():
        from prefect.runtime import flow_run

        end_with_parent()
        (root / BEGUN).parent.mkdir(parents=True, exist_ok=True)
        with (root / BEGUN).open("a", encoding="utf-8") as file:
            file.write(f"{flow_run.id}\n")
    try:
        work()
    except (UserError, StageFailed) as e:
        return failed(e)
    return None


def lost(root: Path) -> int:
    """End, as Crashed, the runs that began in this folder and are shown at work though nobody works; how many.

    To be called where none of them can be alive: they end with the `semspec deploy` that started them.
    """
    from prefect.client.orchestration import get_client
    from prefect.exceptions import ObjectNotFound
    from prefect.states import Crashed

    path, found = root / BEGUN, 0
    with get_client(sync_client=True) as client:
        for ident in path.read_text(encoding="utf-8").split() if path.exists() else []:
            with contextlib.suppress(ObjectNotFound):  # deleted, or of another server
                state = client.read_flow_run(UUID(ident)).state
                # one that waits, for a retry or its time, is taken up as ever
                if state is not None and (state.is_running() or state.is_pending() or state.is_cancelling()):
                    message = "its server or `semspec deploy` ended; Retry goes on where it stopped"
                    client.set_flow_run_state(UUID(ident), Crashed(message=message), force=True)
                    found += 1
    path.unlink(missing_ok=True)
    return found


def failed(error: UserError | StageFailed) -> Any:
    """The end of a flow or task in the UI: Failed with one line and no traceback.

    From the command line it is raised again: that says it itself, with its exit code.
    """
    from prefect.states import Failed

    if not served():
        raise error
    return Failed(message=str(error))


def passed(outcome: Any) -> None:
    """Raise the error of a task that ended by `failed`: Prefect hands the state back instead."""
    if outcome is not None:
        raise StageFailed(outcome.message)


class Progress:
    """A progress artifact of the flow or task run that makes it. Its steps count alike, however long they are."""

    def __init__(self, steps: Sequence[str], key: str = "progress"):
        from prefect.artifacts import create_progress_artifact

        self.steps, self.at, self.moved = list(steps), 0, -math.inf
        self.id = create_progress_artifact(progress=0.0, key=key, description=self._says())

    def _says(self, more: str = "") -> str:
        if self.at >= len(self.steps):
            return "done"
        return f"{self.at + 1} of {len(self.steps)}: {more or self.steps[self.at]}"

    def _show(self, done: float, says: str) -> None:
        from prefect.artifacts import update_progress_artifact

        with contextlib.suppress(Exception):  # a server that is away for a moment must not end hours of work
            update_progress_artifact(self.id, 100 * done / max(1, len(self.steps)), says)

    def step(self, name: str) -> None:
        """This step begins."""
        self.at = self.steps.index(name)
        self._show(self.at, self._says())

    def bar(self, text: str) -> None:
        """The step's own progress bar has moved on; told to the server every `BAR_S` seconds at most."""
        part, now = fraction(text), time.monotonic()
        if part is not None and now - self.moved >= BAR_S:
            self.moved = now
            self._show(self.at + part, self._says(text))

    def done(self) -> None:
        self.at = len(self.steps)
        self._show(self.at, self._says())


def table(key: str, rows: list[dict[str, str]], text: str) -> None:
    """Rows as a table artifact; nothing when there are none."""
    from prefect.artifacts import create_table_artifact

    if rows:
        create_table_artifact(key=key, table=rows, description=text)


def report_link(root: Path, page: Path) -> None:
    """The address of a page below results/ as a link artifact: under `semspec deploy` one that a browser follows."""
    from prefect.artifacts import create_link_artifact

    if not (root / page).exists():
        return
    base = os.environ.get(RESULTS_URL)
    link = f"{base}/{page.relative_to('results').as_posix()}" if base else (root / page).resolve().as_uri()
    create_link_artifact(key="report", link=link, link_text=str(page), description=f"The report: {link}")

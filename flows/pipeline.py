"""The end-to-end flow: one Prefect task per DVC stage that is out of date, then tracking.

Thin on purpose: DVC decides and caches (NO_CACHE here), the work is in `semspec stage NAME`. Annotations are not
postponed in this file: Prefect must see the real type of the flow's parameter, or runs started from its UI fail.
"""

import time
from pathlib import Path
from typing import Any, Literal

from semspec import config, preflight
from semspec import pipeline as library
from semspec.errors import UserError

ROOT = Path(__file__).resolve().parents[1]
library.quiet(ROOT)  # before prefect is imported

from prefect import flow, get_run_logger, task  # noqa: E402
from prefect.artifacts import create_markdown_artifact  # noqa: E402
from prefect.cache_policies import NO_CACHE  # noqa: E402
from prefect.states import Failed  # noqa: E402
from pydantic import BaseModel, Field  # noqa: E402


class Request(BaseModel):
    """What to run."""

    profile: Literal[("current", *config.profiles())] = Field(  # type: ignore[valid-type]
        "current", description="A profile to merge into params.yaml first; `current` leaves it as it is."
    )
    overrides: list[str] = Field(
        default=[], description="Single parameters to change in params.yaml, each as section.name=value."
    )


@task(cache_policy=NO_CACHE, task_run_name="{name}", persist_result=False)
def stage(name: str, live: bool = True) -> None:
    """Run one DVC stage; `live` shows its output on the terminal as well."""
    logger = get_run_logger()
    start = time.perf_counter()
    library.run_stage(ROOT, name, log=logger.info, live=live)
    logger.info("%s: %.1f s", name, time.perf_counter() - start)


@task(cache_policy=NO_CACHE, persist_result=False)
def track() -> None:
    """Record in MLflow and register; doing it twice changes nothing."""
    library.track(ROOT)


def served() -> bool:
    """Was this run started from a deployment (the UI), so that nobody watches the terminal?"""
    from prefect.runtime import deployment

    return deployment.id is not None


@flow(name="pipeline", persist_result=False)
def pipeline(request: Request = Request()) -> Any:  # noqa: B008 (the UI's form needs the default)
    """From models to report. Runs what is out of date, and nothing else."""
    try:
        bring_up_to_date(request)
    except UserError as e:
        if not served():
            raise  # the command line says it, with exit code 2
        return Failed(message=str(e))  # one line in the UI, no traceback
    return None


def bring_up_to_date(request: Request) -> None:
    """What the flow does; `UserError` for the user's mistakes."""
    logger = get_run_logger()
    profile = None if request.profile == "current" else request.profile
    for name in config.apply(ROOT, profile, request.overrides, preflight.check):
        logger.info("params.yaml: %s changed", name)
    todo = library.stale(ROOT)
    logger.info("to do: %s", ", ".join(todo) or "nothing")
    for name in todo:
        stage(name, live=not served())
    track()
    table = library.results_table(ROOT, markdown=True)
    if table:
        create_markdown_artifact(key="comparison", markdown=table, description="Methods on the test problems")


if __name__ == "__main__":  # wait for runs that are started from the Prefect UI (docs/reproduce.md)
    pipeline.serve(name="ui")

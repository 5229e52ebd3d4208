"""The end-to-end flow: one Prefect task per DVC stage that is out of date, then tracking.

Thin on purpose: DVC decides and caches (NO_CACHE here), the work is in `semspec stage NAME`. Annotations are not
postponed in this file: Prefect must see the real type of the flow's parameter, or runs started from its UI fail.
"""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

from semspec import config, forms, preflight, scale, schema, ui
from semspec import pipeline as library
from semspec.commands import StageFailed
from semspec.errors import UserError

ROOT = Path(__file__).resolve().parents[1]
library.quiet(ROOT)  # before prefect is imported

from prefect import flow, get_run_logger, task  # noqa: E402
from prefect.cache_policies import NO_CACHE  # noqa: E402
from pydantic import Field  # noqa: E402

Request = forms.request(
    [name for name in schema.Settings.model_fields if name != "profile"],
    "What to run. A field left empty keeps the value of params.yaml; one that is filled changes it there.",
    profile=(
        Literal[("current", *config.profiles())],  # type: ignore[valid-type]
        Field("current", title="profile", description="Merged into params.yaml first; `current` leaves it as it is."),
    ),
)


@task(cache_policy=NO_CACHE, task_run_name="{name}", persist_result=False)
def stage(name: str, live: bool = True, bar: Callable[[str], None] | None = None) -> Any:
    """Run one DVC stage; `live` shows its output on the terminal as well."""
    logger = get_run_logger()
    start = time.perf_counter()
    try:
        library.run_stage(ROOT, name, log=logger.info, live=live, bar=bar)
    except (UserError, StageFailed) as e:
        return ui.failed(e)
    logger.info("%s: %.1f s", name, time.perf_counter() - start)
    return None


@task(cache_policy=NO_CACHE, persist_result=False)
def track() -> None:
    """Record in MLflow and register; doing it twice changes nothing."""
    library.track(ROOT)


@flow(name="pipeline", persist_result=False)
def pipeline(request: Request = Request()) -> Any:  # noqa: B008 (the UI's form needs the default)
    """From models to report. Runs what is out of date, and nothing else."""
    return ui.carry_out(ROOT, lambda: alone(request))


def alone(request: Request) -> None:
    """What the flow does, and no other run beside it."""
    with library.alone(ROOT):
        bring_up_to_date(request)


def bring_up_to_date(request: Request) -> None:
    """Change params.yaml as asked and run what is out of date; `UserError` for the user's mistakes."""
    logger = get_run_logger()
    live = not ui.served()
    profile = None if request.profile == "current" else request.profile
    for name in config.apply(ROOT, profile, forms.changes(request), preflight.check):
        logger.info("params.yaml: %s changed", name)
    workers = config.load(ROOT).scale
    todo = library.stale(ROOT)
    logger.info("to do: %s", ", ".join(todo) or "nothing")
    progress = ui.Progress([*todo, "track"])
    for name in todo:
        progress.step(name)
        if name in scale.DIVIDED and workers.workers > 1 and not library.is_cached(ROOT, name):
            scale.run_parts(ROOT, name, ["stage", name], workers, live)
        ui.passed(stage(name, live=live, bar=progress.bar))
    progress.step("track")
    track()
    progress.done()
    ui.table("comparison", library.comparison(ROOT / library.SUMMARY), "Methods on the test problems")
    ui.report_link(ROOT, library.REPORT)

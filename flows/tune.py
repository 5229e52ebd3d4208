"""The search for better settings: record, search with several workers, run the best for real, conclude.

Thin on purpose: the work is in `semspec.tuning`, a process for each task. Annotations are not postponed in this file:
Prefect must see the real type of the flow's parameter, or runs started from its UI fail.
"""

from pathlib import Path
from typing import Any

from semspec import config, forms, pipeline, scale, ui
from semspec.process import cancellable
from semspec.tuning import launch

ROOT = Path(__file__).resolve().parents[1]
pipeline.quiet(ROOT)  # before prefect is imported

from prefect import flow, get_run_logger, task  # noqa: E402
from prefect.artifacts import create_markdown_artifact  # noqa: E402
from prefect.cache_policies import NO_CACHE  # noqa: E402
from prefect.task_runners import ThreadPoolTaskRunner  # noqa: E402
from pydantic import Field  # noqa: E402

Request = forms.request(
    ["tune"],
    "What to search. A field left empty keeps the value of params.yaml.",
    name=(
        str,
        Field("ui", title="name", description="Of the search; one of the same name goes on where it stopped."),
    ),
    apply=(bool, Field(False, title="apply", description="Write the winner into params.yaml.")),
)


@task(cache_policy=NO_CACHE, task_run_name="{name}-{worker}", persist_result=False)
def step(name: str, search: str, live: bool, worker: int = 0) -> None:
    """Run one step of a search as a process."""
    more = [worker] if name == "search" else []
    launch.run_step(ROOT, name, search, *more, log=get_run_logger().info, live=live)


@flow(name="tune", persist_result=False, task_runner=ThreadPoolTaskRunner(max_workers=256))  # type: ignore[arg-type]
def tune(request: Request = Request()) -> Any:  # noqa: B008 (the UI's form needs the default)
    """Search, and show what was found; params.yaml changes only where that is asked for."""
    return ui.carry_out(ROOT, lambda: alone(request))


def alone(request: Request) -> None:
    """What the flow does, and no other run beside it."""
    with pipeline.alone(ROOT):
        search(request)


def search(request: Request) -> None:
    """Search and conclude; `UserError` for the user's mistakes."""
    from semspec.tuning.search import begin

    settings = config.overridden(ROOT, forms.changes(request), source="the search's parameters")
    live = not ui.served()
    if not live:
        launch.check(ROOT, request.name)
    begin(ROOT, request.name, settings)
    step("prepare", request.name, live)
    # a worker that died is started again and takes up the trial that was lost
    worker_step = step.with_options(retries=scale.RETRIES, retry_condition_fn=scale.broke)
    workers = [worker_step.submit("search", request.name, live, i) for i in range(settings.tune.workers)]
    with cancellable(live):  # here: the task runner would wait for its threads first
        for worker in workers:
            worker.result()
    if settings.tune.live:
        step("live", request.name, live)
    step("conclude", request.name, live)
    text = launch.conclusion(ROOT, request.name, request.apply)
    create_markdown_artifact(key="search", markdown=text, description=f"The search '{request.name}'")
    if live:
        print(text)

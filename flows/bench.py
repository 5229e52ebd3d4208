"""A comparison of its own, started from Prefect's UI: `semspec bench` into results/NAME, and its report.

params.yaml stays as it is, and so do DVC's outputs: the form's values hold for this run alone. Annotations are not
postponed in this file: Prefect must see the real type of the flow's parameter.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from semspec import commands, config, forms, preflight, scale, ui
from semspec import pipeline as library
from semspec.commands import StageFailed
from semspec.errors import UserError

ROOT = Path(__file__).resolve().parents[1]
library.quiet(ROOT)  # before prefect is imported

from prefect import flow, get_run_logger, task  # noqa: E402
from prefect.cache_policies import NO_CACHE  # noqa: E402
from pydantic import Field  # noqa: E402

# the folders of the pipeline and of other commands, and published runs
TAKEN = ("bench", "report", "plan", "tune", "studies", "published", *config.profiles())

Request = forms.request(
    ["seed", "bench", "decide", "exact", "baselines", "scale"],
    "What to compare. A field left empty keeps the value of params.yaml, which stays as it is.",
    name=(
        str,
        Field(
            "run",
            title="name",
            pattern=r"^[a-z0-9][a-z0-9_-]*$",
            max_length=60,
            description="Folder below results/: small letters, digits, - and _. The same name and form again resumes.",
        ),
    ),
)


@task(cache_policy=NO_CACHE, task_run_name="{args[0]}", persist_result=False)
def command(args: list[str], bar: Callable[[str], None]) -> Any:
    """Run one `semspec` command."""
    try:
        commands.semspec(args, ROOT, get_run_logger().info, live=not ui.served(), bar=bar)
    except (UserError, StageFailed) as e:
        return ui.failed(e)
    return None


@flow(name="bench", persist_result=False)
def bench(request: Request = Request()) -> Any:  # noqa: B008 (the UI's form needs the default)
    """Methods on test problems, beside the pipeline."""
    return ui.carry_out(ROOT, lambda: alone(request))


def alone(request: Request) -> None:
    """What the flow does, and no other run beside it."""
    with library.alone(ROOT):
        compare(request)


def compare(request: Request) -> None:
    """Bench and report into results/NAME; `UserError` for the user's mistakes."""
    if request.name in TAKEN:
        raise UserError(f"results/{request.name} is not for runs of one's own; choose another name")
    changes = forms.changes(request)
    settings = config.overridden(ROOT, changes)
    preflight.check(settings)
    out = Path("results") / request.name
    args = ["bench", "--out", str(out), *(a for change in changes for a in ("--set", change))]
    progress = ui.Progress(["bench", "report"])
    if settings.scale.workers > 1:
        scale.run_parts(ROOT, "bench", args, settings.scale, live=not ui.served())
    ui.passed(command(args, progress.bar))
    ui.table("comparison", library.comparison(ROOT / out / "summary.json"), f"Methods on the test problems, in {out}")
    progress.step("report")
    ui.passed(command(["report", "--results", str(out)], progress.bar))
    progress.done()
    ui.report_link(ROOT, out / "report" / "index.html")

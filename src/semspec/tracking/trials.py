"""A search in MLflow: one run for the search, and a nested one for every trial.

Doing it twice changes nothing: a trial that has a run is left alone. Knows plain data of trials; knows no Optuna.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from semspec.tracking import _warn
from semspec.tracking.mlflow_log import MAX_PARAM, client, experiment, numbers

if TYPE_CHECKING:
    from semspec.schema import Settings

SEARCH_TAG, TRIAL_TAG, PARENT_TAG = "semspec.search", "semspec.trial", "mlflow.parentRunId"
PAGE = 1000  # runs of an answer


def _parent(mlflow: Any, where: str, ident: str, name: str, settings: Settings) -> str:
    known = mlflow.search_runs([where], f"tags.`{SEARCH_TAG}` = '{ident}'", max_results=1)
    if known:
        return str(known[0].info.run_id)
    tags = {SEARCH_TAG: ident, "semspec.profile": settings.profile, "mlflow.source.name": "semspec tune"}
    run = mlflow.create_run(where, run_name=f"tune-{name}", tags=tags)
    for key, value in settings.tune.model_dump(mode="json").items():
        mlflow.log_param(run.info.run_id, f"tune.{key}", str(value)[:MAX_PARAM])
    return str(run.info.run_id)


def _logged(mlflow: Any, where: str, parent: str) -> set[str]:
    found, token = set(), None
    while True:
        page = mlflow.search_runs([where], f"tags.`{PARENT_TAG}` = '{parent}'", max_results=PAGE, page_token=token)
        found |= {run.data.tags.get(TRIAL_TAG, "") for run in page}
        token = page.token
        if not token:
            return found


def log_trials(
    root: Path,
    settings: Settings,
    ident: str,
    name: str,
    trials: Sequence[Mapping[str, Any]],
    new: bool = False,
    finished: Sequence[Path] | None = None,
) -> str | None:
    """Give every trial a nested run; the search's run id, or None (and one warning line) when MLflow can't be reached.

    trials: {"number", "state" ("COMPLETE" | "FAIL"), "params", "metrics"}. new: none of them can have a run yet.
    finished: files to keep with the search's run, which is then ended.
    """
    try:
        import time

        mlflow = client(root, settings)
        from mlflow.entities import Metric, Param

        where = experiment(mlflow, root, settings)
        parent = _parent(mlflow, where, ident, name, settings)
        known = set() if new else _logged(mlflow, where, parent)
        for trial in trials:
            if str(trial["number"]) in known:
                continue
            tags = {PARENT_TAG: parent, TRIAL_TAG: str(trial["number"])}
            run = mlflow.create_run(where, run_name=f"{name}-{trial['number']}", tags=tags)
            now = int(time.time() * 1000)
            mlflow.log_batch(
                run.info.run_id,
                params=[Param(k, str(v)[:MAX_PARAM]) for k, v in trial["params"].items()],
                metrics=[Metric(k, v, now, 0) for k, v in numbers(dict(trial["metrics"]))],
            )
            mlflow.set_terminated(run.info.run_id, "FINISHED" if trial["state"] == "COMPLETE" else "FAILED")
        if finished is not None:
            for path in finished:
                mlflow.log_artifact(parent, str(path))
            mlflow.set_terminated(parent, "FINISHED")
        return parent
    except Exception as e:  # a record must never cost a result
        _warn("trials are not recorded", e)
        return None

"""Dividing a long stage among workers: one Prefect task for each part, on this machine or on a Ray or Dask cluster.

A part is a process, `semspec ... --part K/N`, on whichever machine holds the (shared) folder. It leaves its shards or
rows there, and the undivided command, run afterwards by DVC as ever, finds them and puts them together. A part that
died is started again and goes on behind its last shard or row. Knows nothing of what a part computes.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from semspec.commands import StageFailed, semspec
from semspec.process import cancellable
from semspec.schema import Scale
from semspec.ui import Progress

DIVIDED = ("sample", "bench")  # the stages that take --part
RETRIES = 2  # of a process that died


def devices(k: int, gpus: int) -> dict[str, str]:
    """The GPUs of part k on a machine whose GPUs the parts share out, as an environment; none named for 0."""
    if not gpus:
        return {}
    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    mine = slice((k - 1) * gpus, k * gpus)
    chosen = named.split(",")[mine] if named is not None else [str(i) for i in range(mine.start, mine.stop)]
    return {"CUDA_VISIBLE_DEVICES": ",".join(chosen)}


def run_part(root: str, name: str, args: list[str], k: int, n: int, env: dict[str, str], live: bool) -> None:
    """The task: `semspec ARGS --part k/n` in `root`, its lines in the task's log, its bar as an artifact."""
    from prefect import get_run_logger

    logger = get_run_logger()
    progress = Progress([f"{name}, part {k} of {n}"], key=f"{name}-{k}-of-{n}")

    def log(line: str) -> None:
        logger.info(line)
        if live:
            print(f"{name}, part {k} of {n}: {line}", file=sys.stderr, flush=True)

    semspec([*args, "--part", f"{k}/{n}"], Path(root), log, bar=progress.bar, env=env)
    progress.done()


def broke(task: Any, run: Any, state: Any) -> bool:
    """Prefect's question whether to try a process again: not after the user's mistake."""
    return isinstance(state.result(raise_on_failure=False), StageFailed)


def _runner(scale: Scale) -> Any:
    """Prefect's task runner for these settings; a cluster that is not named is made for the run, on loopback."""
    if scale.runner == "ray":
        from prefect_ray import RayTaskRunner

        if scale.address:
            return RayTaskRunner(address=scale.address)
        local = {"num_cpus": scale.workers, "include_dashboard": False, "_node_ip_address": "127.0.0.1"}
        return RayTaskRunner(init_kwargs=local)
    if scale.runner == "dask":
        from prefect_dask import DaskTaskRunner

        if scale.address:
            return DaskTaskRunner(address=scale.address)
        local = {"n_workers": scale.workers, "threads_per_worker": 1, "dashboard_address": None}
        return DaskTaskRunner(cluster_kwargs=local)
    from prefect.task_runners import ThreadPoolTaskRunner

    return ThreadPoolTaskRunner(max_workers=scale.workers)


def _reserved(scale: Scale) -> Any:
    """While tasks are submitted: what each asks of the cluster. Ray hides the GPUs from tasks that ask for none."""
    if scale.runner == "ray" and scale.gpus:
        from prefect_ray.context import remote_options

        return remote_options(num_gpus=scale.gpus)
    return nullcontext()


def run_parts(root: Path, name: str, args: Sequence[str], scale: Scale, live: bool = False) -> None:
    """Run `semspec ARGS` in `scale.workers` parts at once, as a flow run within the one that calls.

    name: what it is called in the UI. Raises what a part raised: `UserError`, or `StageFailed` after `RETRIES` more
    attempts. A cancellation ends all parts.
    """
    from prefect import flow, task
    from prefect.cache_policies import NO_CACHE

    n = scale.workers
    gpus = scale.gpus if scale.runner == "threads" else 0  # a cluster hands its own out
    part = task(
        run_part, name=name, task_run_name="{name} {k} of {n}", retries=RETRIES, retry_condition_fn=broke,
        cache_policy=NO_CACHE, persist_result=False,
    )  # fmt: skip

    def parts() -> None:
        with _reserved(scale):
            futures = [part.submit(str(root), name, list(args), k, n, devices(k, gpus), live) for k in range(1, n + 1)]
        with cancellable(live):  # here: the task runner would wait for its threads first
            for future in futures:
                future.result()

    divided = flow(parts, name="parts", flow_run_name=f"{name} in {n} parts", task_runner=_runner(scale))
    divided()

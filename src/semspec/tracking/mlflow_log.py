"""One MLflow run for the state of the files: parameters, hashes, training curves, metrics, report.

A pure reader of what the stages wrote. A finished run with the same content is found again instead of
repeated.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from semspec import config, files, provenance, schema
from semspec.errors import UserError

if TYPE_CHECKING:
    from mlflow.entities import Metric
    from mlflow.tracking import MlflowClient

    from semspec.schema import Settings

CONTENT_TAG = "semspec.content"
# What identifies a run: everything that a number in it comes from, small enough to hash each time.
CONTENT = (
    "data/models/*.json",
    "data/contexts.parquet",
    "data/samples/samples.parquet",
    "data/labels.parquet",
    "data/probes/**/*",
    "results/bench/graded.jsonl",
    "results/bench/results.jsonl",
    "results/bench/summary.json",
)
ARTIFACTS = {  # file or folder -> folder among the run's artifacts
    "results/report": "report",
    "results/bench/summary.json": "bench",
    "results/bench/results.jsonl": "bench",
    "data/probes/metrics.json": "probes",
    "dvc.lock": "",
}
MAX_PARAM = 6000  # MLflow's limit on the length of a parameter
MAX_BATCH = 1000  # metrics a request
NOISY = ("mlflow", "alembic", "urllib3.connectionpool")


def uri(root: Path, settings: Settings) -> str:
    """Tracking address: the setting, else MLFLOW_TRACKING_URI, else sqlite mlflow.db in `root`."""
    return settings.tracking.uri or os.environ.get("MLFLOW_TRACKING_URI", "") or _own(root)


def _own(root: Path) -> str:
    return f"sqlite:///{(root.resolve() / 'mlflow.db').as_posix()}"


def check_database(address: str) -> None:
    """`UserError` where a local database is not there: whoever opened it to read would make an empty one."""
    database = Path(address.removeprefix("sqlite:///"))
    if address.startswith("sqlite:///") and not database.exists():
        raise UserError(f"there is no registry in {database.parent} yet; `semspec run` makes it")


def seen_at(root: Path, settings: Settings) -> str:
    """Where people look at the runs: a tracking server's address, or the command that shows a database."""
    address = config.without_secrets(uri(root, settings))
    return address if address.startswith("http") else f"mlflow ui --backend-store-uri {address}"


def content(root: Path, settings: Settings) -> tuple[str, dict[str, str]]:
    """(MD5 of the whole state, {path: SHA-256}) of the parameters and of the files in `CONTENT`."""
    found = sorted({p for pattern in CONTENT for p in root.glob(pattern) if p.is_file()})
    hashes = {p.relative_to(root).as_posix(): files.sha256(p) for p in found}
    key = json.dumps([provenance.params_sha256(settings), hashes], sort_keys=True)
    return hashlib.md5(key.encode(), usedforsecurity=False).hexdigest(), hashes


def numbers(data: Any, prefix: str = "") -> Iterator[tuple[str, float]]:
    """(name, value) of each finite number in nested data: ("target.mae", 0.1), or ("ci.0", 0.2) in a list."""
    if isinstance(data, bool) or data is None or isinstance(data, str):
        return
    if isinstance(data, int | float):
        if math.isfinite(data):
            yield prefix, float(data)
        return
    pairs = data.items() if isinstance(data, dict) else enumerate(data)
    for key, value in pairs:
        name = "".join(c if c.isalnum() or c in "_-. /" else "_" for c in str(key))
        yield from numbers(value, f"{prefix}.{name}" if prefix else name)


def _is_history(key: str, value: Any) -> bool:
    return "history" in key and isinstance(value, list) and all(isinstance(row, dict) for row in value)


def split_history(data: Any, prefix: str = "") -> tuple[Any, list[tuple[str, int, float]]]:
    """Take per-epoch histories out of nested metrics: (the rest, [(name, epoch, value)]).

    A history is a list of rows like `{"epoch": 1, "train_loss": ...}` under a key with "history" in it.
    """
    if not isinstance(data, dict):
        return data, []
    rest, points = {}, []
    for key, value in data.items():
        name = f"{prefix}.{key}" if prefix else key
        if _is_history(key, value):
            where = prefix or "train"
            for step, row in enumerate(value):
                epoch = int(row.get("epoch", step))
                points += [(f"{where}.{n}", epoch, v) for n, v in numbers(row) if n != "epoch"]
        else:
            rest[key], more = split_history(value, name)
            points += more
    return rest, points


def _metrics(root: Path) -> list[Metric]:
    import time

    from mlflow.entities import Metric

    now = int(time.time() * 1000)
    out: list[Metric] = []
    probes, bench = root / "data/probes/metrics.json", root / "results/bench/summary.json"
    if probes.exists():
        rest, points = split_history(files.read_json(probes))
        out += [Metric(f"probe.{name}", value, now, step) for name, step, value in points]
        out += [Metric(f"probe.{name}", value, now, 0) for name, value in numbers(rest)]
    if bench.exists():
        out += [Metric(f"bench.{n}", v, now, 0) for n, v in numbers(files.read_json(bench).get("methods", {}))]
    return out


def experiment(client: MlflowClient, root: Path, settings: Settings) -> str:
    """Id of the experiment, made on first use; artifacts of a local database go to `root`/mlruns.

    A database that was copied along with its project would send them to the folder it came from: there the experiment
    keeps its runs under another name, and this project begins one of its own.
    """
    name = settings.tracking.experiment
    address = uri(root, settings)
    folder = (root.resolve() / "mlruns").as_uri() if address.startswith("sqlite:") else None
    known = client.get_experiment_by_name(name)
    if known is not None and known.lifecycle_stage == "deleted":
        client.restore_experiment(known.experiment_id)
    if known is not None and address == _own(root) and known.artifact_location != folder:
        client.rename_experiment(known.experiment_id, f"{name} {known.experiment_id} (of {known.artifact_location})")
        known = None
    return str(known.experiment_id if known else client.create_experiment(name, artifact_location=folder))


def client(root: Path, settings: Settings) -> MlflowClient:
    """A client of the tracking address; what keeps MLflow quiet is set before it is imported."""
    from semspec.quiet import quiet

    quiet(root)
    import logging

    for name in NOISY:
        logging.getLogger(name).setLevel(logging.ERROR)
    from mlflow.tracking import MlflowClient

    for name in NOISY:  # its import sets them again
        logging.getLogger(name).setLevel(logging.ERROR)
    address = uri(root, settings)
    return MlflowClient(tracking_uri=address, registry_uri=address)


def log(root: Path, settings: Settings) -> str:
    """Record the present files; returns the run's id, of an old run if one with this content finished."""
    mlflow = client(root, settings)
    from mlflow.entities import Param, RunTag

    where = experiment(mlflow, root, settings)
    md5, hashes = content(root, settings)
    known = mlflow.search_runs(
        [where], f"tags.`{CONTENT_TAG}` = '{md5}' and attributes.status = 'FINISHED'", max_results=1
    )
    if known:
        return str(known[0].info.run_id)

    origin = provenance.collect(settings)
    parameters = config.flatten(settings.model_dump(mode="json", exclude=schema.ASIDE - {"profile"}))
    tags = {
        CONTENT_TAG: md5,
        "semspec.profile": settings.profile,
        "semspec.params_sha256": origin["params_sha256"],
        "mlflow.source.git.commit": (origin["code"] or {}).get("commit"),
        "semspec.dirty": (origin["code"] or {}).get("dirty"),
    }
    run = mlflow.create_run(where, run_name=f"{settings.profile}-{md5[:8]}", tags={"mlflow.source.name": "semspec"})
    run_id = str(run.info.run_id)
    try:
        metrics = _metrics(root)
        mlflow.log_batch(
            run_id,
            params=[Param(k, str(v)[:MAX_PARAM]) for k, v in parameters.items()],
            tags=[RunTag(k, str(v)) for k, v in tags.items() if v is not None],
        )
        for start in range(0, len(metrics), MAX_BATCH):
            mlflow.log_batch(run_id, metrics=metrics[start : start + MAX_BATCH])
        mlflow.log_dict(run_id, {"data": hashes, **origin}, "provenance.json")
        if (root / config.PARAMS).exists():
            said = (root / config.PARAMS).read_text(encoding="utf-8")
            mlflow.log_text(run_id, config.without_secrets(said), config.PARAMS)
        for path, folder in ARTIFACTS.items():
            source = root / path
            if source.is_dir():
                mlflow.log_artifacts(run_id, str(source), folder)
            elif source.exists():
                mlflow.log_artifact(run_id, str(source), folder or None)
    except BaseException:
        mlflow.set_terminated(run_id, "FAILED")
        raise
    mlflow.set_terminated(run_id, "FINISHED")
    return run_id

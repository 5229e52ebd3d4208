"""A stage divided among workers: threads, a local Ray cluster, a local Dask cluster; and workers that are killed."""

from __future__ import annotations

import importlib.util
import threading
import time
from pathlib import Path

import psutil
import pytest
from project import make_project

from semspec import scale
from semspec.errors import UserError
from semspec.files import read_parquet, sha256, write_json
from semspec.schema import Scale
from semspec.semantics import sampling

pytestmark = [pytest.mark.services, pytest.mark.timeout(600)]
FILES = ("samples.parquet", "draft.safetensors", "target.safetensors")


def needs(runner: str) -> pytest.MarkDecorator:
    missing = runner != "threads" and importlib.util.find_spec(f"prefect_{runner}") is None
    return pytest.mark.skipif(missing, reason=f"prefect-{runner} is not installed")


RUNNERS = [pytest.param(name, marks=needs(name)) for name in ("threads", "ray", "dask")]


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """A project whose samples were made by one worker, undivided."""
    root = tmp_path_factory.mktemp("alone")
    settings = make_project(root, "contexts.questions=8", "sample.contexts_per_shard=1", "sample.n=12")
    for role in ("draft", "target"):
        write_json(root / f"data/models/{role}.json", {"name": role})
    sampling.make_contexts(settings, root)
    sampling.sample(settings, root)
    return root, settings


@pytest.fixture
def project(alone, tmp_path):
    """The same project before its samples were made."""
    for name in ("params.yaml", "data/models/draft.json", "data/models/target.json", "data/contexts.parquet"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes((alone[0] / name).read_bytes())
    return tmp_path


def shards(root: Path) -> list[Path]:
    return sorted((root / "data/samples/shards").rglob("*.parquet"))


def kill_once(root: Path, whom: str, killed: list[int]) -> threading.Thread:
    """As soon as a shard exists: `kill -9` a process with `--part` ("part"), or the worker above it ("worker")."""

    def hunt() -> None:
        while not killed:
            for p in psutil.Process().children(recursive=True):
                try:
                    if "--part" in p.cmdline() and shards(root):
                        victim = p if whom == "part" else p.parent()
                        victim.kill()
                        killed.append(p.pid)
                        return
                except psutil.Error:
                    continue
            time.sleep(0.02)

    thread = threading.Thread(target=hunt, daemon=True)
    thread.start()
    return thread


def same_as_alone(root: Path, alone) -> None:
    """The parts left every shard, and together they are the bytes of one worker: nothing lost, nothing twice."""
    assert len(shards(root)) == 8 and not (root / "data/samples/samples.parquet").exists()
    sampling.sample(alone[1], root)  # what the DVC stage does then: it finds the shards
    for name in FILES:
        assert sha256(root / "data/samples" / name) == sha256(alone[0] / "data/samples" / name), name
    assert read_parquet(root / "data/samples/samples.parquet").sample_id.is_unique


@pytest.mark.parametrize("runner", RUNNERS)
def test_two_workers_make_the_bytes_of_one(server, project, alone, runner):
    """Two workers of each kind."""
    scale.run_parts(project, "sample", ["stage", "sample"], Scale(runner=runner, workers=2))
    same_as_alone(project, alone)


@pytest.mark.parametrize(
    ("runner", "whom"),
    [("threads", "part"), pytest.param("ray", "worker", marks=needs("ray"))],
)
def test_what_a_killed_worker_had_to_do_is_done_again(server, project, alone, runner, whom):
    """kill -9 of a part's process, and of a Ray worker with a part under it: the rest is made by another."""
    killed: list[int] = []
    kill_once(project, whom, killed)
    scale.run_parts(project, "sample", ["stage", "sample"], Scale(runner=runner, workers=2))
    assert killed and not psutil.pid_exists(killed[0])
    same_as_alone(project, alone)


def test_the_users_mistake_is_not_tried_again(server, tmp_path):
    """A part that can't work says so once, in its own line."""
    make_project(tmp_path)
    with pytest.raises(UserError, match=r"contexts\.parquet is missing"):
        scale.run_parts(tmp_path, "sample", ["stage", "sample"], Scale(workers=2))


def test_workers_on_one_machine_share_out_its_gpus(monkeypatch):
    """Each part sees its own GPUs, of those that are visible at all; none is named when none is asked for."""
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert scale.devices(3, 0) == {}
    assert scale.devices(2, 2) == {"CUDA_VISIBLE_DEVICES": "2,3"}
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,6,7")
    assert scale.devices(2, 1) == {"CUDA_VISIBLE_DEVICES": "6"}
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert scale.devices(2, 1) == {"CUDA_VISIBLE_DEVICES": ""}

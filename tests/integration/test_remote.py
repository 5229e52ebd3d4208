"""A DVC remote: what one clone pushes, a fresh clone pulls, and finds nothing to do."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from fake_project import make_fake, ran

from semspec import commands, pipeline

pytestmark = pytest.mark.timeout(300)


def dvc(root: Path, *args: str) -> None:
    command = [sys.executable, "-m", "dvc", *args]
    subprocess.run(command, cwd=root, env=commands.environment(), check=True, capture_output=True, timeout=120)


def git(root: Path, *args: str) -> None:
    who = ["-c", "user.name=t", "-c", "user.email=t@example.org"]
    subprocess.run(["git", *who, *args], cwd=root, check=True, capture_output=True)


def test_a_fresh_clone_pulls_what_another_pushed(tmp_path):
    """Outputs go to a local directory remote and come back the same; the clone has no stage to run."""
    first, second = tmp_path / "first", tmp_path / "second"
    first.mkdir()
    make_fake(first)
    dvc(first, "repro")
    dvc(first, "remote", "add", "-d", "store", str(tmp_path / "store"))
    dvc(first, "push", "--run-cache")
    git(first, "add", "--all")
    git(first, "commit", "-qm", "results")
    git(tmp_path, "clone", "-q", str(first), str(second))
    assert not (second / "m.txt").exists()
    dvc(second, "pull")
    for name in ("m.txt", "results/bench/summary.json", "results/report/index.html"):
        assert (second / name).read_bytes() == (first / name).read_bytes()
    ran(second)
    assert pipeline.stale(second) == []

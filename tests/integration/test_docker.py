"""Images and compose: pinned, not root, healthy by a check of their own; and the same commands, run natively."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from ruamel.yaml import YAML

pytestmark = pytest.mark.timeout(800)
REPO = Path(__file__).resolve().parents[2]
COMPOSE = YAML(typ="safe").load(REPO / "docker/compose.yaml")
SERVICES = COMPOSE["services"]
DOCKERFILES = sorted((REPO / "docker").glob("*/Dockerfile"))
VARIABLE = re.compile(r"\$\{\w+:-([^}]*)\}")
BIN = Path(sys.executable).parent


def tool(name: str) -> str:
    """A program of the test extra; the test is skipped where there is none (another system than Linux)."""
    found = shutil.which(name, path=f"{BIN}{os.pathsep}{os.environ['PATH']}")
    if found is None:
        pytest.skip(f"no {name} on this machine")
    return found


def instructions(path: Path, name: str) -> list[str]:
    """The arguments of every NAME instruction of a Dockerfile, continued lines joined."""
    text = path.read_text(encoding="utf-8").replace("\\\n", " ")
    return [line.split(None, 1)[1] for line in text.splitlines() if line.startswith(f"{name} ")]


def test_compose_has_the_services_that_are_documented():
    """Without a profile what a machine without a GPU can run; SGLang asks for the profile `gpu`."""
    assert {n for n, s in SERVICES.items() if "profiles" not in s} == {"prefect", "mlflow", "worker", "server"}
    assert {n for n, s in SERVICES.items() if s.get("profiles") == ["gpu"]} == {"sglang-target", "sglang-draft"}


@pytest.mark.parametrize("name", SERVICES)
def test_every_service_is_pinned_unprivileged_watched_and_keeps_to_itself(name):
    """A version in the image's tag, a user that is not root, a health check, ports on loopback, named volumes only."""
    service = SERVICES[name]
    tag = service["image"].rpartition(":")[2]
    assert re.fullmatch(r"\d+\.\d+\.\d+", tag)
    assert service["user"].split(":")[0] not in ("0", "root", "")
    assert service["cap_drop"] == ["ALL"] and service["init"] and service["restart"] == "unless-stopped"
    health = service["healthcheck"]
    assert health["test"][0] == "CMD" and int(health["start_period"].rstrip("s")) >= 60
    assert all(port.startswith("127.0.0.1:") for port in service.get("ports", []))
    volumes = [v.split(":")[0] for v in service["volumes"]]
    assert volumes and set(volumes) <= set(COMPOSE["volumes"])


def test_versions_agree():
    """The image's tag is the package's version, SGLang's is the one installed, PyTorch's the locked one."""
    project = tomllib.loads((REPO / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert SERVICES["worker"]["image"] == f"semspec-cpu:{project['version']}"
    sglang = SERVICES["sglang-target"]["image"].rpartition(":")[2]
    assert f"sglang=={sglang}" in (REPO / "docker/sglang/Dockerfile").read_text(encoding="utf-8")
    assert f"TORCH={locked()['torch']}" in instructions(REPO / "docker/cpu/Dockerfile", "ARG")
    assert "mlflow:*" in SERVICES["mlflow"]["command"], "behind its host name MLflow answers 403 otherwise"


def locked() -> dict[str, str]:
    lines = (REPO / "docker/cpu/requirements.txt").read_text(encoding="utf-8").splitlines()
    return dict(line.split("==") for line in lines if not line.startswith("#"))


def test_every_dependency_is_locked():
    """A dependency that was added, or raised, is in the image too: else run `python docker/lock.py` as it says."""
    project = tomllib.loads((REPO / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    lock = locked()
    for wanted in map(Requirement, project["dependencies"]):
        have = lock.get(canonicalize_name(wanted.name))
        assert have and wanted.specifier.contains(have), f"{wanted}: run docker/lock.py"


@pytest.mark.parametrize("path", DOCKERFILES, ids=lambda p: p.parent.name)
def test_images_are_pinned_and_not_root(path):
    """A base image with a full version, and a user that is not root at the end."""
    (base,) = instructions(path, "FROM")
    assert re.search(r":\d+\.\d+\.\d+[\w.-]*$", base)
    assert instructions(path, "USER")[-1].split(":")[0] not in ("0", "root")


@pytest.mark.parametrize("path", DOCKERFILES, ids=lambda p: p.parent.name)
def test_an_image_gets_what_it_copies(path):
    """Every COPY source is here and let through by .dockerignore."""
    passed = [line[1:] for line in (REPO / ".dockerignore").read_text().splitlines() if line.startswith("!")]
    for words in map(shlex.split, instructions(path, "COPY")):
        for source in [w for w in words if not w.startswith("--")][:-1]:
            assert (REPO / source).exists()
            assert any(f"{p}/".startswith(f"{source}/") or f"{source}/".startswith(f"{p}/") for p in passed), source


def test_sglang_has_the_package_that_it_is_told_to_import_and_the_addresses_that_are_looked_at():
    """The copied modules import nothing else of ours, and the published ports are the engine's defaults."""
    from semspec.schema import SGLANG

    path = REPO / "docker/sglang/Dockerfile"
    package = re.search(r"SGLANG_EXTERNAL_MODEL_PACKAGE=(\S+)", path.read_text(encoding="utf-8")).group(1)
    copied = [w for words in map(shlex.split, instructions(path, "COPY")) for w in words[:-1]]
    assert {f"src/{package.replace('.', '/')}", "src/semspec/__init__.py"} == set(copied)
    for role in ("target", "draft"):
        service = SERVICES[f"sglang-{role}"]
        assert f"http://{service['ports'][0].rpartition(':')[0]}" == SGLANG[role]
        assert "--cuda-graph-backend-prefill disabled" in service["command"], "a pass in a graph shows no states"


def test_the_user_of_the_image_owns_the_volumes():
    """Every volume has a folder of the user's."""
    path = REPO / "docker/cpu/Dockerfile"
    folders = next(run for run in instructions(path, "RUN") if "install -d" in run).split()
    for name in ("prefect", "mlflow", "worker", "server"):
        assert {v.split(":")[1] for v in SERVICES[name]["volumes"]} <= set(folders)


@pytest.mark.parametrize("path", DOCKERFILES, ids=lambda p: p.parent.name)
def test_hadolint_finds_nothing(path):
    """The Dockerfile linter has no complaint."""
    done = subprocess.run([tool("hadolint"), str(path)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_compose_itself_reads_the_file():
    """`docker compose config` accepts it, profile included, and fills in the defaults."""
    done = subprocess.run(
        [tool("docker-compose"), "-f", "docker/compose.yaml", "--profile", "gpu", "config", "--format", "json"],
        cwd=REPO,
        env={k: v for k, v in os.environ.items() if not k.startswith("SEMSPEC_")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    read = json.loads(done.stdout)["services"]
    assert set(read) == set(SERVICES)
    for name, service in SERVICES.items():
        assert read[name]["command"] == shlex.split(VARIABLE.sub(r"\1", service["command"]))


def native(*args: str, **env: str) -> subprocess.CompletedProcess[str]:
    """docker/native.sh, with this Python's programs."""
    return subprocess.run(
        ["docker/native.sh", *args],
        cwd=REPO,
        env=os.environ | {"PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}"} | env,
        capture_output=True,
        text=True,
        timeout=700,
        check=False,
    )


def test_native_commands_are_those_of_compose():
    """Word by word the same, but for ports and folders; all on loopback."""
    done = native("--print", SEMSPEC_SERVED="/some/bundle")
    assert done.returncode == 0, done.stderr
    printed = dict(line.split(": ", 1) for line in done.stdout.splitlines())
    assert list(printed) == ["prefect", "mlflow", "worker", "server"]
    for name, line in printed.items():
        words, wanted = shlex.split(line), shlex.split(SERVICES[name]["command"])
        assert len(words) == len(wanted)
        for word, want in zip(words, wanted, strict=True):
            pattern = ".+".join(re.escape(part) for part in VARIABLE.split(want)[::2])
            assert re.fullmatch(pattern, word), (name, word, want)
        assert "0.0.0.0" not in line
    assert printed["server"].endswith("'/some/bundle'")


def test_a_native_service_that_ends_is_started_again(tmp_path):
    """Twice at most, as the script says."""
    text = (REPO / "docker/native.sh").read_text(encoding="utf-8")
    start = re.search(r"^start\(\) \{.*?^\}", text, re.S | re.M)
    assert start is not None and "set -euo pipefail" in text
    service = "start_x() { echo begun; exit 3; }; sleep() { :; }"
    script = f"set -euo pipefail\nset -m\nstate={tmp_path}\ndeclare -A pid\n{service}\n{start[0]}\nstart x\nwait"
    subprocess.run(["bash", "-c", script], check=True, timeout=60)
    assert (tmp_path / "x.log").read_text() == "begun\n" * 3


@pytest.mark.services
def test_native_services_become_healthy_and_end():
    """Prefect, MLflow and the worker pass the health checks of the compose file, and nothing of them is left."""
    done = native()
    assert done.returncode == 0, done.stdout + done.stderr
    assert "all services are healthy: prefect mlflow worker" in done.stdout

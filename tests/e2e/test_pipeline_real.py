"""The whole pipeline once, for real: SmolLM2-135M as draft and target, real DVC, Prefect and MLflow, tiny settings."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from semspec import config
from semspec.engine.statistics import STATISTICS
from semspec.tracking import mlflow_log, registry

REPO = Path(__file__).resolve().parents[2]
BIN = Path(sys.executable).parent
TINY = [
    "models.draft=smollm2-135m-instruct",
    "models.target=smollm2-135m-instruct",
    "engine.threads=1",
    "text.max_step_tokens=24",
    "contexts.questions=6",
    "contexts.max_tokens=64",
    "sample.n=4",
    "sample.contexts_per_shard=3",
    "train.folds=3",
    "train.epochs=20",
    "bench.limit=2",
    "bench.max_tokens=32",
    "bench.bootstrap=200",
    "report.projection=pca",
]


def command(*args: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """What a user's shell would run, whatever other tests have told Prefect and MLflow."""
    env = {k: v for k, v in os.environ.items() if not k.startswith(("PREFECT_", "MLFLOW_"))}
    env["PATH"] = f"{BIN}{os.pathsep}{env['PATH']}"
    return subprocess.run(args, cwd=cwd, env=env, capture_output=True, text=True, timeout=800, check=False)


@pytest.fixture(scope="module")
def clone(tmp_path_factory):
    """A clone of this repository (working tree included) in which the pipeline has run."""
    root = tmp_path_factory.mktemp("clone") / "semspec"
    files = command("git", "ls-files", "-co", "--exclude-standard", cwd=REPO).stdout.split("\n")
    for name in filter(None, files):
        if name != "dvc.lock" and not name.startswith("results/") and (REPO / name).is_file():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_bytes((REPO / name).read_bytes())
    (root / "params.yaml").write_bytes((REPO / "tests/defaults/params.yaml").read_bytes())  # whatever the user's are
    assert command("git", "init", "-q", cwd=root).returncode == 0
    sets = [x for value in TINY for x in ("--set", value)]
    done = command("semspec", "run", *sets, cwd=root)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    return root, done


@pytest.mark.model
def test_one_command_gives_the_table_and_the_report(clone):
    """`semspec run` ends with every method in the table and leaves report and results."""
    root, done = clone
    table = done.stdout.rpartition("\n\nreport ")[0].rpartition("\n\n")[2]
    assert {line.split()[0] for line in table.splitlines()} == {"method", "target", "draft", "semantic"}, done.stdout
    page = (root / "results/report/index.html").read_text(encoding="utf-8")
    assert "<svg" in page and "semantic" in page
    rows = [json.loads(line) for line in (root / "results/bench/results.jsonl").read_text().splitlines()]
    assert len(rows) == 6 and {r["method"] for r in rows} == {"target", "draft", "semantic"}


@pytest.mark.model
def test_a_second_run_does_nothing(clone):
    """Nothing is out of date, so no stage runs and no server is started."""
    root, _ = clone
    again = command("semspec", "run", cwd=root)
    assert again.returncode == 0, again.stderr
    assert "up to date" in again.stdout and "starting Prefect" not in again.stderr


@pytest.mark.model
def test_the_run_registers_a_champion(clone, monkeypatch):
    """The version under the alias is of the run, and its bundle is there, with a probe of each model."""
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    root, _ = clone
    settings = config.load(root)
    client = mlflow_log.client(root, settings)
    version = client.get_model_version_by_alias(registry.model_name(settings), registry.CHAMPION)
    bundle = f"{Path(version.source).name}/artifacts/bundle"
    found = {f"{bundle}/{name}" for name in ("bundle.json", "evaluation.json", "model_card.md", "probes")}
    assert {f.path for f in client.list_artifacts(version.run_id, bundle)} == found
    probes = {Path(f.path).name for f in client.list_artifacts(version.run_id, f"{bundle}/probes")}
    assert {"draft", "target"} <= probes


@pytest.mark.model_full
def test_the_champion_loads_in_a_clean_process(clone):
    """The registered bundle loads by alias, with pickle refused, and predicts."""
    root, _ = clone
    layers, width = json.loads((root / "data/probes/target/config.json").read_text())["reading"]
    code = (
        "import mlflow, pandas as pd\n"
        "from mlflow import MlflowClient\n"
        "name = MlflowClient().search_registered_models()[0].name\n"
        "model = mlflow.pyfunc.load_model(f'models:/{name}@champion')\n"
        f"row = {{'hidden': [0.1] * {layers * width}, 'logprob': [-0.5] * {len(STATISTICS)}}}\n"
        "p = model.predict(pd.DataFrame([{'role': r, **row} for r in ('draft', 'target')]))\n"
        "print('P', p['probability'].tolist())\n"
    )
    env = os.environ | {
        "MLFLOW_TRACKING_URI": f"sqlite:///{root}/mlflow.db",
        "MLFLOW_ALLOW_PICKLE_DESERIALIZATION": "false",
    }
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=root.parent,
        env=env,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    values = json.loads(done.stdout.split("P ", 1)[1])
    assert len(values) == 2 and all(0 < v <= 1 for v in values)


@pytest.mark.model_full
def test_rerunning_stages_by_hand_gives_the_same_bytes(clone):
    """`semspec stage` for labels, probes and graded answers, on their own, leaves what the flow left."""
    root, _ = clone
    names = [
        "data/labels.parquet",
        "data/probes/target/probe.safetensors",
        "data/probes/metrics.json",
        "results/bench/graded.jsonl",
    ]
    before = [(root / n).read_bytes() for n in names]
    for stage in ("cluster", "train", "bench"):
        done = command("semspec", "stage", stage, cwd=root)
        assert done.returncode == 0, done.stderr
    assert [(root / n).read_bytes() for n in names] == before

"""The whole pipeline once, for real: SmolLM2-135M as draft and target, real DVC, Prefect and MLflow, tiny settings."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from semspec.engine.statistics import STATISTICS

REPO = Path(__file__).resolve().parents[2]
BIN = Path(sys.executable).parent
TINY = [
    "models.draft=smollm2-135m-instruct",
    "models.target=smollm2-135m-instruct",
    "text.max_step_tokens=24",
    "contexts.questions=6",
    "contexts.max_tokens=64",
    "sample.n=4",
    "sample.contexts_per_shard=3",
    "train.folds=3",
    "train.epochs=20",
    "bench.limit=2",
    "bench.max_tokens=64",
    "bench.bootstrap=200",
]


def command(*args: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    env = os.environ | {"PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}"}
    env.pop("PREFECT_API_URL", None)
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
    assert command("git", "init", "-q", cwd=root).returncode == 0
    sets = [x for value in TINY for x in ("--set", value)]
    done = command("semspec", "run", *sets, cwd=root)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    return root, done


@pytest.mark.model
def test_one_command_gives_the_table_and_the_report(clone):
    """`semspec run` ends with every method in the table and leaves report, results and a clean DVC state."""
    root, done = clone
    assert all(m in done.stdout for m in ("target", "draft", "semantic"))
    page = (root / "results/report/index.html").read_text(encoding="utf-8")
    assert "<svg" in page and "semantic" in page
    rows = [json.loads(line) for line in (root / "results/bench/results.jsonl").read_text().splitlines()]
    assert len(rows) == 6 and {r["method"] for r in rows} == {"target", "draft", "semantic"}
    status = command("dvc", "status", "--json", cwd=root)
    assert json.loads(status.stdout) == {}, status.stdout


@pytest.mark.model
def test_a_second_run_does_nothing(clone):
    """Nothing is out of date, so no stage runs and no server is started."""
    root, _ = clone
    again = command("semspec", "run", cwd=root)
    assert again.returncode == 0, again.stderr
    assert "up to date" in again.stdout and "starting Prefect" not in again.stderr


@pytest.mark.model
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

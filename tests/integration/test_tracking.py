"""MLflow: one run per state of the files, one version per bundle, and a model that loads without pickle."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from semspec import config, files, tracking
from semspec.probe.calibration import Calibration
from semspec.probe.probe import Probe
from semspec.tracking import bundle, mlflow_log, registry

pytestmark = pytest.mark.timeout(400)
MINIMAL = {"models": {"draft": "Small/0.5B", "target": "big", "encoder": "e"}, "text": {"system": "Think."}}
WIDTH = {"draft": 4, "target": 6}


def write_probe(root: Path, role: str, seed: int = 0) -> Probe:
    """A small linear probe on two layers, saved where `train` saves it."""
    rng = np.random.default_rng(seed)
    arrays = {
        "bias": np.array([0.5]),
        "center": np.zeros((2, WIDTH[role]), np.float32),
        "weight": rng.normal(0, 0.1, (2, WIDTH[role])).astype(np.float32),
        "logprob_center": np.zeros(5, np.float32),
        "logprob_weight": np.full(5, 0.01, np.float32),
    }
    calibration = Calibration("none", 0.01, np.zeros(0), np.zeros(0))
    probe = Probe(role, "linear", [0, 1], (2, WIDTH[role]), True, arrays, calibration)
    probe.save(root / "data/probes" / role)
    return probe


def write_project(root: Path) -> None:
    """The files that the stages leave, small, with the awkward values (null, lists, text) real ones have."""
    for role in ("draft", "target"):
        write_probe(root, role)
        files.write_json(root / f"data/models/{role}.json", {"name": role, "sha256": role * 4, "folder": role})
    history = [{"epoch": e, "train_loss": 1 / e, "val_loss": None if e == 2 else 2 / e} for e in (1, 2, 3)]
    probe = {"mae": 0.1, "spearman": None, "predictor": "mlp", "history": history, "mae_ci": [0.05, 0.2]}
    files.write_json(root / "data/probes/metrics.json", {"target": probe, "decision": {"error": 0.2}})
    semantic = {
        "pass_at_1": 0.5,
        "pass_at_1_ci": [0.1, 0.9],
        "speedup": 1.5,
        "acceptance_length": None,
        "n": 6,
    }
    files.write_json(root / "results/bench/summary.json", {"methods": {"semantic": semantic}, "provenance": {}})
    files.write_jsonl(root / "results/bench/results.jsonl", [{"id": "1", "method": "semantic", "correct": True}])
    report = root / "results/report"
    (report / "tables").mkdir(parents=True)
    (report / "index.html").write_text("<p>report</p>")
    (report / "tables" / "main.md").write_text("| a |")
    (root / "params.yaml").write_text(json.dumps(MINIMAL))


@pytest.fixture(scope="session")
def migrated(tmp_path_factory):
    """An MLflow database with its tables: made once, because that takes seconds."""
    root = tmp_path_factory.mktemp("mlflow")
    mlflow_log.client(root, config.validate(MINIMAL)).search_experiments()
    return root / "mlflow.db"


@pytest.fixture
def project(tmp_path, migrated, monkeypatch):
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    shutil.copy(migrated, tmp_path / "mlflow.db")
    write_project(tmp_path)
    return tmp_path


@pytest.fixture
def settings():
    return config.validate(MINIMAL)


def test_numbers_leaves_out_what_is_no_number():
    """Null, NaN, text and booleans are no metrics; list items are numbered; odd characters are replaced."""
    data = {"a": None, "b": float("nan"), "c": "x", "d": True, "e": [1, 2.5], "f": {"p@1": 3}}
    assert dict(mlflow_log.numbers(data)) == {"e.0": 1.0, "e.1": 2.5, "f.p_1": 3.0}


def test_same_files_make_one_run(project, settings):
    """A second call returns the first run; a changed result makes another run."""
    first = tracking.log_run(project, settings)
    assert first is not None and tracking.log_run(project, settings) == first
    files.write_jsonl(project / "results/bench/results.jsonl", [{"id": "1", "method": "semantic", "correct": False}])
    assert tracking.log_run(project, settings) not in (None, first)


def test_run_holds_parameters_curves_metrics_and_report(project, settings):
    """Parameters, training history by epoch, intervals, tags, and the report are all in the run."""
    run_id = tracking.log_run(project, settings)
    client = mlflow_log.client(project, settings)
    run = client.get_run(run_id)
    assert run.data.params["bench.gamma"] == "1" and run.data.params["models.target"] == "big"
    assert run.data.metrics["probe.target.mae"] == 0.1 and run.data.metrics["bench.semantic.pass_at_1_ci.1"] == 0.9
    assert not any("spearman" in name or "acceptance_length" in name for name in run.data.metrics)
    curve = client.get_metric_history(run_id, "probe.target.val_loss")
    assert [(m.step, m.value) for m in curve] == [(1, 2.0), (3, pytest.approx(2 / 3))]
    assert run.info.status == "FINISHED" and run.data.tags["semspec.profile"] == "quick"
    assert {f.path for f in client.list_artifacts(run_id, "report")} == {"report/index.html", "report/tables"}
    assert (project / "mlruns").is_dir()


def test_failure_is_one_warning_line(tmp_path, settings, capsys):
    """A tracking address that can't work costs one line, not the result."""
    broken = settings.model_copy(update={"tracking": config.Tracking(uri="sqlite:////proc/no/such/mlflow.db")})
    assert tracking.log_run(tmp_path, broken) is None
    err = capsys.readouterr().err.strip().splitlines()
    assert sum(line.startswith("warning: ") for line in err) == 1


def test_bundle_is_complete_and_repeatable(project, settings, tmp_path):
    """Probes, layers, rule, models, metrics with intervals, data hashes; the same bytes each time."""
    one, two = tmp_path / "one", tmp_path / "two"
    made = bundle.make_bundle(project, settings, one)
    bundle.make_bundle(project, settings, two)
    assert bundle.md5(one) == bundle.md5(two)
    assert made["layers"] == {"draft": [0, 1], "target": [0, 1]} and made["decoding"]["gamma"] == 1
    assert made["models"]["target"].items() >= {"name": "target", "sha256": "target" * 4}.items()
    assert made["metrics"]["bench"]["semantic"]["pass_at_1_ci"] == [0.1, 0.9]
    assert "history" not in made["metrics"]["probes"]["target"]
    names = {p.relative_to(one).as_posix() for p in one.rglob("*") if p.is_file()}
    assert names == {"bundle.json"} | {
        f"probes/{r}/{n}" for r in ("draft", "target") for n in ("probe.safetensors", "config.json")
    }
    assert str(project) not in (one / "bundle.json").read_text()


def test_champion_gives_way_only_to_better_on_the_same_problems():
    """Worse on the same problems keeps the old champion; other problems can't be compared."""
    new = {registry.BENCH_TAG: "x", registry.SCORE_TAG: "0.5"}
    assert registry.beats(new, None)
    assert not registry.beats(new, {registry.BENCH_TAG: "x", registry.SCORE_TAG: "0.6"})
    assert registry.beats(new, {registry.BENCH_TAG: "y", registry.SCORE_TAG: "0.6"})


LOAD = """
import json, os, sys
import mlflow, pandas as pd
mlflow.set_tracking_uri(sys.argv[1])
model = mlflow.pyfunc.load_model(sys.argv[2])
out = model.predict(pd.DataFrame(json.load(sys.stdin)))
print(json.dumps([out["probability"].tolist(), "torch" in sys.modules]))
"""


def test_registered_model_answers_in_a_clean_process(project, settings):
    """The same bundle twice is one version; `@champion` predicts what the probe does, pickle refused."""
    run_id = tracking.log_run(project, settings)
    version = tracking.register(project, settings, run_id)
    assert version == "1" and tracking.register(project, settings, run_id) == "1"
    name = registry.model_name(settings)
    assert name == "semspec-0.5b-big"
    client = mlflow_log.client(project, settings)
    stored = client.get_model_version_by_alias(name, registry.ALIAS)
    assert stored.version in ("1", 1) and stored.run_id == run_id
    files_of_model = [p.name for p in (project / "mlruns").rglob("*") if p.is_file()]
    assert "probe.safetensors" in files_of_model and not any(n.endswith((".pkl", ".pyc")) for n in files_of_model)

    rng = np.random.default_rng(1)
    roles = ["target", "draft", "target"]
    rows = {
        "role": roles,
        "hidden": [rng.normal(size=2 * WIDTH[r]).tolist() for r in roles],
        "logprob": rng.normal(size=(3, 5)).tolist(),
    }
    env = os.environ | {"MLFLOW_ALLOW_PICKLE_DESERIALIZATION": "false", "MLFLOW_DISABLE_TELEMETRY": "true"}
    done = subprocess.run(
        [sys.executable, "-c", LOAD, mlflow_log.uri(project, settings), f"models:/{name}@{registry.ALIAS}"],
        input=json.dumps(rows), env=env, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    got, torch_loaded = json.loads(done.stdout.strip().splitlines()[-1])
    probes = {role: Probe.load(project / "data/probes" / role) for role in WIDTH}
    for value, role, hidden, logprob in zip(got, roles, rows["hidden"], rows["logprob"], strict=True):
        want = probes[role].predict(np.array(hidden).reshape(1, 2, -1), np.array([logprob]))[0]
        assert value == pytest.approx(want, abs=1e-5)
    assert not torch_loaded, "the probes need no torch"

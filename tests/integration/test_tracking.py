"""MLflow: one run per state of the files, one version per bundle, and a model that loads without pickle."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from semspec import config, files, schema, tracking
from semspec.errors import UserError
from semspec.probe.calibration import Calibration
from semspec.probe.joint import Joint
from semspec.probe.probe import Probe
from semspec.tracking import bundle, mlflow_log, registry
from semspec.tracking.command import run as act

pytestmark = pytest.mark.timeout(400)
MINIMAL = {"models": {"draft": "Small/0.5B", "target": "big", "encoder": "e"}, "text": {"system": "Think."}}
WIDTH = {"draft": 4, "target": 6}


def write_probe(root: Path, role: str, seed: int = 0, folder: str = "") -> Probe:
    """A small linear probe on two layers, saved where `train` saves it, or in a folder beside that."""
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
    probe.save(root / "data/probes" / folder / role)
    return probe


def write_answers(root: Path, right: str) -> None:
    """results.jsonl with an answer of `semantic` for each letter: "yn" is one right and one wrong."""
    rows = [{"id": str(i), "method": "semantic", "correct": r == "y", "latency_s": 2.0} for i, r in enumerate(right)]
    files.write_jsonl(root / "results/bench/results.jsonl", rows)


def write_project(root: Path) -> None:
    """The files that the stages leave, small, with the awkward values (null, lists, text) real ones have."""
    for role in ("draft", "target"):
        write_probe(root, role)
        files.write_json(root / f"data/models/{role}.json", {"name": role, "sha256": role * 4, "folder": role})
    history = [{"epoch": e, "train_loss": 1 / e, "val_loss": None if e == 2 else 2 / e} for e in (1, 2, 3)]
    score = {"mae": 0.1, "spearman": 0.5, "spearman_ci": [0.4, 0.6], "brier": 0.1, "ece": 0.1, "n": 9, "questions": 3}
    probe = {
        "mae": 0.1,
        "spearman": None,
        "predictor": "mlp",
        "history": history,
        "mae_ci": [0.05, 0.2],
        "candidates": {"mlp": {"all": score}},
        "baselines": {},
        "chosen_because": "it is alone",
        "beats_baselines": None,
    }
    files.write_json(root / "data/probes/metrics.json", {"target": probe, "decision": {"error": 0.2}})
    semantic = {
        "pass_at_1": 0.5,
        "pass_at_1_ci": [0.1, 0.9],
        "speedup": 1.5,
        "acceptance_length": None,
        "n": 6,
    }
    provenance = {"dataset": "/some/where/my.jsonl", "dataset_sha256": "d" * 64, "packages": {"math-verify": "0.9"}}
    files.write_json(root / "results/bench/summary.json", {"methods": {"semantic": semantic}, "provenance": provenance})
    write_answers(root, "yn")
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
    write_answers(project, "nn")
    assert tracking.log_run(project, settings) not in (None, first)


def test_a_copied_project_keeps_its_artifacts_to_itself(project, settings, tmp_path_factory):
    """Its database came from elsewhere and still points there; the runs it brought along can still be read."""
    first = tracking.log_run(project, settings)
    copy = tmp_path_factory.mktemp("copy") / "project"
    shutil.copytree(project, copy)
    second = tracking.log_run(copy, settings)
    client = mlflow_log.client(copy, settings)
    assert second != first and Path(client.get_run(second).info.artifact_uri.removeprefix("file://")).is_relative_to(
        copy
    )
    assert client.list_artifacts(first, "report") and client.list_artifacts(second, "report")
    assert tracking.log_run(copy, settings) == second and tracking.log_run(project, settings) == first


def test_run_holds_parameters_curves_metrics_and_report(project, settings):
    """Parameters, training history by epoch, intervals, tags, and the report are all in the run; a password is not."""
    with (project / "params.yaml").open("a") as file:
        file.write("# tracking.uri was https://me:secret@there\n")
    run_id = tracking.log_run(project, settings)
    client = mlflow_log.client(project, settings)
    run = client.get_run(run_id)
    published = Path(client.download_artifacts(run_id, "params.yaml")).read_text()
    assert published == (project / "params.yaml").read_text().replace("me:secret@", "")
    assert run.data.params["bench.gamma"] == "1" and run.data.params["models.target"] == "big"
    assert run.data.metrics["probe.target.mae"] == 0.1 and run.data.metrics["bench.semantic.pass_at_1_ci.1"] == 0.9
    assert not {"probe.target.spearman", "bench.semantic.acceptance_length"} & set(run.data.metrics)
    curve = client.get_metric_history(run_id, "probe.target.val_loss")
    assert [(m.step, m.value) for m in curve] == [(1, 2.0), (3, pytest.approx(2 / 3))]
    assert run.info.status == "FINISHED" and run.data.tags["semspec.profile"] == "quick"
    assert {f.path for f in client.list_artifacts(run_id, "report")} == {"report/index.html", "report/tables"}
    assert (project / "mlruns").is_dir()


def test_failure_is_one_warning_line(tmp_path, settings, capsys):
    """A tracking address that can't work costs one line, not the result."""
    broken = settings.model_copy(update={"tracking": schema.Tracking(uri="sqlite:////proc/no/such/mlflow.db")})
    assert tracking.log_run(tmp_path, broken) is None
    err = capsys.readouterr().err.strip().splitlines()
    assert sum(line.startswith("warning: ") for line in err) == 1


def test_bundle_is_complete_and_repeatable(project, settings, tmp_path):
    """Probes, layers, rule, models, metrics with intervals, data hashes; the same bytes each time."""
    one, two = tmp_path / "one", tmp_path / "two"
    for folder in ("joint", "last_hidden"):
        parts = {role: write_probe(project, role, 1, folder) for role in WIDTH}
    Joint(parts, parts["draft"].calibration).save(project / "data/probes/joint")
    made = bundle.make_bundle(project, settings, one)
    bundle.make_bundle(project, settings, two)
    assert bundle.md5(one) == bundle.md5(two)
    assert made["layers"] == {"draft": [0, 1], "target": [0, 1]} and made["decoding"]["gamma"] == 1
    assert made["models"]["target"].items() >= {"name": "target", "sha256": "target" * 4}.items()
    assert made["metrics"]["bench"]["semantic"]["pass_at_1_ci"] == [0.1, 0.9]
    assert "history" not in made["metrics"]["probes"]["target"]
    names = {p.relative_to(one).as_posix() for p in one.rglob("*") if p.is_file()}
    assert names == {"bundle.json", "evaluation.json", "model_card.md", "probes/joint/config.json"} | {
        f"probes/{folder}{role}/{name}"
        for folder in ("", "joint/")
        for role in WIDTH
        for name in ("probe.safetensors", "config.json")
    }, "the joint predictor whole, and no set of probes that is only compared with"
    assert Joint.load(one / "probes/joint").layers == {"draft": [0, 1], "target": [0, 1]}
    for path in (one / "bundle.json", one / "evaluation.json", one / "model_card.md"):
        assert str(project) not in path.read_text() and "/some/where" not in path.read_text()
    evaluation = files.read_json(one / "evaluation.json")
    assert evaluation["correct"] == {"0": 1.0, "1": 0.0} and evaluation["method"] == "semantic"
    assert evaluation["conditions"] == {
        "dataset": "my.jsonl",
        "n": 2,
        "problems_sha256": "d" * 64,
        "repeats": 1,
        "max_tokens": 320,
        "sampling": "greedy",
        "grader": "math-verify 0.9, semspec None",
    }


def test_settings_of_the_registry_change_no_bundle(project, tmp_path):
    """The margin of the gate is no part of what was measured: another one makes no other version."""
    digests = set()
    for margin in (0.0, 5.0):
        settings = config.validate(MINIMAL | {"registry": {"margin": margin, "name": f"m{margin:g}"}})
        bundle.make_bundle(project, settings, tmp_path / str(margin))
        digests.add(bundle.md5(tmp_path / str(margin)))
    assert len(digests) == 1


def test_card_of_a_published_run(tmp_path):
    """The card says pair, licence, hashes, data, intervals, rule and limits, within MLflow's limit on a description."""
    published = Path(__file__).resolve().parents[2] / "results/overnight"
    settings = config.load(published)
    for role in WIDTH:
        write_probe(tmp_path, role)
        name = getattr(settings.models, role)
        files.write_json(
            tmp_path / f"data/models/{role}.json", {"name": name, "source": "catalogue", "sha256": "ab" * 32}
        )
    shutil.copy(published / "probes.json", tmp_path / "data/probes/metrics.json")
    (tmp_path / "results/bench").mkdir(parents=True)
    for name in ("results.jsonl", "summary.json"):
        shutil.copy(published / name, tmp_path / "results/bench" / name)
    (tmp_path / "data/labels.parquet").write_bytes(b"labels")
    bundle.make_bundle(tmp_path, settings, tmp_path / "bundle")
    text = (tmp_path / "bundle/model_card.md").read_text()
    assert "| target | qwen2.5-coder-1.5b-instruct | Apache-2.0 | " + "ab" * 32 in text
    assert "40 problems of `gsm_symbolic` (06719373f4af8495)" in text and "at most 320 tokens, greedy" in text
    rows = [line for name in ("results.md", "decision.md") for line in (published / name).read_text().splitlines()]
    measured = next(line for line in rows if line.startswith("| semantic |")).split(" | ")[:3]
    ranks = next(line for line in rows if line.startswith("| joint predictor")).split(" | ")[2]
    assert " | ".join(measured) in text and ranks in text
    assert "A drafted step is kept where min(1, the joint predictor's) is at least 0.3." in text
    assert "not truth" in text and "200 questions" in text
    assert len(text) <= registry.MAX_TEXT and "\n\n\n" not in text


def answers(project: Path, settings: schema.Settings, right: str) -> registry.Outcome:
    """Register what `semspec run` would, had `semantic` given these answers."""
    write_answers(project, right)
    run_id = tracking.log_run(project, settings)
    assert run_id is not None
    outcome = tracking.register(project, settings, run_id)
    assert outcome is not None
    return outcome


def aliases(project: Path, settings: schema.Settings) -> dict[str, str]:
    return registry.Registry(project, settings).aliases()


def test_a_champion_whose_files_are_gone_lets_nobody_pass(project, settings):
    """Not measured is not the same as not to be found; a version without files is not promoted at all."""
    answers(project, settings, "yy")
    assert not answers(project, settings, "nn").champion
    places = {v.parent.parent.parent: v for v in (project / "mlruns").rglob("bundle.json")}
    first, second = sorted(places, key=lambda p: p.stat().st_mtime)
    away = first.rename(first.with_name("away"))
    with pytest.raises(UserError, match=r"files of version 1 .* can't be found"):
        act("promote", "2", settings, project, False, as_json=False)
    assert aliases(project, settings)["champion"] == "1"
    away.rename(first)
    second.rename(second.with_name("away"))
    with pytest.raises(UserError, match=r"files of version 2 .* can't be found"):
        act("promote", "2", settings, project, True, as_json=False)
    assert aliases(project, settings)["champion"] == "1"


def test_challengers_pass_the_gate_or_stay_and_a_rollback_takes_the_last_promotion_back(project, settings, capsys):
    """The story of five versions: first, better, worse, on other problems, forced; and back twice."""
    assert answers(project, settings, "yn").champion
    better = answers(project, settings, "yy")
    assert better.champion and better.former == "1" and aliases(project, settings) == {"champion": "2"}
    worse = answers(project, settings, "nn")
    assert not worse.champion and "-100.0 points" in worse.reason and "registry.margin" in worse.reason
    assert aliases(project, settings) == {"champion": "2", "challenger": "3"}
    again = answers(project, settings, "yy")
    assert again.version == "2" and again.champion, "a known bundle is no new version"
    assert not answers(project, settings, "nn").champion and aliases(project, settings)["challenger"] == "3"

    summary = files.read_json(project / "results/bench/summary.json")
    summary["provenance"]["dataset_sha256"] = "e" * 64
    files.write_json(project / "results/bench/summary.json", summary)
    other = answers(project, settings, "yyy")
    assert not other.champion and "3 of my.jsonl (eeeeeeee), not 2 of my.jsonl (dddddddd)" in other.reason

    def command(action: str, version: str | None = None, force: bool = False) -> dict:
        act(action, version, settings, project, force, as_json=True)
        return json.loads(capsys.readouterr().out)

    with pytest.raises(UserError, match=r"not measured as the champion was.*--force"):
        act("promote", None, settings, project, False, as_json=False)
    assert command("promote", force=True)["champion"]
    assert aliases(project, settings) == {"champion": "4"}
    listed = command("list")["versions"]
    assert [v["version"] for v in listed] == ["4", "3", "2", "1"] and listed[0]["aliases"] == ["champion"]
    assert listed[0]["gate"].startswith("passed (against version 2): forced, although")
    assert listed[1]["gate"].startswith("refused (against version 2): Pass@1 -100.0")
    files_of_2 = next((project / "mlruns").rglob(f"model-{listed[2]['bundle'][:12]}"))
    files_of_2.rename(project / "away")
    with pytest.raises(UserError, match=r"files of version 2 .* can't be found"):
        command("rollback")
    (project / "away").rename(files_of_2)
    assert aliases(project, settings) == {"champion": "4"}, "a rollback to nothing is none"
    assert command("rollback")["version"] == "2" and command("rollback")["version"] == "1"
    assert aliases(project, settings) == {"champion": "1"}
    with pytest.raises(UserError, match="no former champion"):
        act("rollback", None, settings, project, False, as_json=False)
    with pytest.raises(UserError, match="no version or alias '9'"):
        act("promote", "9", settings, project, False, as_json=False)
    with pytest.raises(UserError, match="no challenger"):
        act("promote", None, settings, project, False, as_json=False)
    write_answers(project, "yy")
    summary["provenance"]["dataset_sha256"] = "d" * 64
    files.write_json(project / "results/bench/summary.json", summary)
    assert not answers(project, settings, "yy").champion, "what was rolled back is not promoted by the next run"
    act("list", None, settings, project, False, as_json=False)
    assert "champion" in capsys.readouterr().out


def test_a_killed_registration_is_finished_by_the_next(project, settings, monkeypatch):
    """Killed between the version and its alias: the next run gives the same version its alias."""
    monkeypatch.setattr(registry.Registry, "promote", lambda *a, **k: 1 / 0)
    run_id = tracking.log_run(project, settings)
    assert tracking.register(project, settings, run_id) is None
    monkeypatch.undo()
    outcome = tracking.register(project, settings, run_id)
    assert outcome.version == "1" and outcome.champion and aliases(project, settings) == {"champion": "1"}


def test_a_killed_promotion_is_finished_by_the_next(project, settings, monkeypatch):
    """Killed between the champion's alias and the gate's tag: the next run writes it, and a rollback stays one."""
    assert answers(project, settings, "yn").champion
    crown = registry.Registry._crown
    monkeypatch.setattr(registry.Registry, "_crown", lambda self, version: crown(self, version) or 1 / 0)
    write_answers(project, "yy")
    assert tracking.register(project, settings, tracking.log_run(project, settings)) is None
    monkeypatch.undo()
    assert aliases(project, settings)["champion"] == "2"
    assert answers(project, settings, "yy").champion and aliases(project, settings) == {"champion": "2"}
    act("rollback", None, settings, project, False, as_json=False)
    assert not answers(project, settings, "yy").champion
    assert aliases(project, settings)["champion"] == "1"


def test_without_results_a_version_stays_challenger(project, settings):
    """Probes that no comparison has used are registered, and replace no champion."""
    assert answers(project, settings, "yn").champion
    files.write_jsonl(project / "results/bench/results.jsonl", [])
    unmeasured = tracking.register(project, settings, tracking.log_run(project, settings))
    assert not unmeasured.champion and "no results of semantic" in unmeasured.reason


@pytest.mark.parametrize(
    ("uri", "said"),
    [
        ("", "no registry in .* yet; `semspec run` makes it"),
        ("http://u:pw@127.0.0.1:9", "http://127.0.0.1:9 gave no answer"),
    ],
)
def test_a_registry_that_is_not_there_is_one_line(tmp_path, monkeypatch, uri, said):
    """No database yet, or no server: says so, without the password; makes nothing."""
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    settings = config.validate(MINIMAL | {"tracking": {"uri": uri}})
    with pytest.raises(UserError, match=said) as caught:
        act("list", None, settings, tmp_path, False, as_json=False)
    assert "\n" not in str(caught.value) and "pw" not in str(caught.value)
    assert not (tmp_path / "mlflow.db").exists()


@pytest.mark.parametrize(
    ("uri", "shown"),
    [
        ("", r"mlflow ui --backend-store-uri sqlite:///.*/mlflow\.db"),
        ("http://u:pw@127.0.0.1:5000", r"http://127\.0\.0\.1:5000"),
    ],
)
def test_where_runs_are_seen(tmp_path, monkeypatch, uri, shown):
    """A database is shown by a command; a server shows itself at its address, which is told without the password."""
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    settings = config.validate(MINIMAL | {"tracking": {"uri": uri}})
    assert re.fullmatch(shown, mlflow_log.seen_at(tmp_path, settings))


LOAD = """
import json, os, sys
import mlflow, pandas as pd
mlflow.set_tracking_uri(sys.argv[1])
model = mlflow.pyfunc.load_model(sys.argv[2])
out = model.predict(pd.DataFrame(json.load(sys.stdin)))
example = model.predict(model.input_example)["probability"].tolist()
print(json.dumps([out["probability"].tolist(), example, "torch" in sys.modules]))
"""


def test_registered_model_answers_in_a_clean_process(project, settings):
    """The same bundle twice is one version; `@champion` predicts what the probe does, pickle refused."""
    run_id = tracking.log_run(project, settings)
    first, second = (tracking.register(project, settings, run_id) for _ in range(2))
    assert first.version == second.version == "1"
    name = registry.model_name(settings)
    assert name == "semspec-0.5b-big"
    client = mlflow_log.client(project, settings)
    stored = client.get_model_version_by_alias(name, registry.CHAMPION)
    assert stored.description.startswith("# draft -> target")
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
        [sys.executable, "-c", LOAD, mlflow_log.uri(project, settings), f"models:/{name}@{registry.CHAMPION}"],
        input=json.dumps(rows), env=env, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    got, example, torch_loaded = json.loads(done.stdout.strip().splitlines()[-1])
    probes = {role: Probe.load(project / "data/probes" / role) for role in WIDTH}
    for value, role, hidden, logprob in zip(got, roles, rows["hidden"], rows["logprob"], strict=True):
        want = probes[role].predict(np.array(hidden).reshape(1, 2, -1), np.array([logprob]))[0]
        assert value == pytest.approx(want, abs=1e-5)
    want = probes["draft"].predict(np.zeros((1, 2, WIDTH["draft"])), np.zeros((1, 5)))[0]
    assert example == [pytest.approx(want, abs=0.01)], "the example is the mean state, which is zero here"
    assert not torch_loaded, "the probes need no torch"

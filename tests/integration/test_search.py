"""A whole search with tiny real models: recorded, searched, run live, concluded, and logged in MLflow."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from filelock import FileLock
from project import make_project

from semspec import config, files, stages
from semspec.errors import UserError
from semspec.models import describe
from semspec.tracking import mlflow_log, trials
from semspec.tuning import command, launch, search

SMALL = [
    "contexts.dataset=synthetic",
    "bench.dataset=synthetic",
    "tune.search=[decide, gamma, layers]",
    "tune.questions=4",
    "tune.trials=5",
    "tune.live=2",
    "tune.live_seeds=1",
    "train.predictor=linear",
    "train.folds=2",
    "decide.threshold=0.5",
]


@pytest.fixture(scope="module")
def project(tmp_path_factory) -> Path:
    """Samples of tiny random models, with labels by lot, and a search that is recorded."""
    root = tmp_path_factory.mktemp("tune")
    settings = make_project(root, *SMALL)
    for role in ("draft", "target"):
        files.write_json(root / f"data/models/{role}.json", describe(getattr(settings.models, role)))
    stages.contexts(settings, root)
    stages.sample(settings, root)
    rows = files.read_parquet(root / "data/samples/samples.parquet")
    labels = rows[["sample_id", "context_id", "question_id", "author"]].copy()
    lots = np.random.default_rng(0).integers(0, 4, (2, len(rows))) / 3
    labels["cluster"], labels["p_draft"], labels["p_target"] = np.arange(len(rows)), np.maximum(lots[0], 1 / 3), lots[1]
    files.write_parquet(root / "data/labels.parquet", labels)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(root)
        patch.delenv("MLFLOW_TRACKING_URI", raising=False)
        search.begin(root, "s", settings)
        command.prepare(root, "s")
    return root


def test_a_search_from_start_to_end(project, monkeypatch):
    """Replay and live agree where no verdict is drawn; a second round finds all done; MLflow has a run for each."""
    monkeypatch.chdir(project)
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    out = search.begin(project, "s", config.load(project))
    study = search.open_study(out, config.load(project))
    for layers in ("all", "last", "range", "every"):  # a verdict is drawn in one trial of five, and two are run live
        study.enqueue_trial({"verdict": "threshold", "layers": layers})
    study.enqueue_trial({"verdict": "drawn", "layers": "all"})
    for step in (command.worker, command.live, command.conclude):
        step(project, "s")
    found = search.results(search.open_study(out, config.load(project)))
    assert len(found) == 5 and all(t.missing == 0 and t.latency_s > 0 for t in found)
    by_number = {t.number: t for t in found}
    lived = files.read_json(out / "live.json")["configurations"]
    sure = [one for one in lived if by_number[one["number"]].overrides["decide.threshold"] is not None]
    assert sure and all(one["pass_at_1"] == by_number[one["number"]].pass_at_1 for one in sure)
    result = json.loads((out / "results.json").read_text())
    assert result["trials"]["COMPLETE"] == 5 and result["known"]["target"]["ratio"] == 1
    assert (out / "pareto.png").exists() and (out / "agreement.png").exists()

    settings = config.load(project)
    applied = search.changed(settings, result["front"][0]["overrides"])
    if result["winner"]:
        applied = search.changed(settings, result["winner"]["overrides"])
    else:  # none did better than params.yaml: then one of the front shall have
        files.write_json(out / "results.json", result | {"winner": result["front"][0]})
    search.begin(project, "s", applied)  # params.yaml with the winner in it is still the same search ...
    assert files.read_json(out / "settings.json")["decide"] == settings.model_dump(mode="json")["decide"]
    with pytest.raises(UserError, match="other parameters"):  # ... and with anything else it is not
        search.begin(project, "s", search.changed(applied, {"sample.n": settings.sample.n + 1}))

    command.worker(project, "s")
    command.conclude(project, "s")
    client = mlflow_log.client(project, settings)
    where = [mlflow_log.experiment(client, project, settings)]
    (parent,) = client.search_runs(where, f"tags.`{trials.SEARCH_TAG}` != ''")
    nested = client.search_runs(where, f"tags.`{trials.PARENT_TAG}` = '{parent.info.run_id}'")
    assert {run.data.tags[trials.TRIAL_TAG] for run in nested} == {str(t.number) for t in found}
    assert {run.data.metrics["latency_s"] for run in nested} == {t.latency_s for t in found}


def test_without_models_what_is_not_recorded_is_missing(project, monkeypatch):
    """A search of recorded answers loads no model, and leaves out what the record lacks."""
    monkeypatch.chdir(project)
    monkeypatch.setattr("semspec.engine.load", lambda *args: pytest.fail("a model was loaded"))
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    chosen = search.changed(config.load(project), {"tune.extend": False, "tune.trials": 3})
    search.begin(project, "recorded", chosen)
    for step in (command.prepare, command.worker, command.conclude):
        step(project, "recorded")
    searcher = command._searcher(project, search.folder(project, "recorded"), chosen)
    tree = searcher.tree(searcher.settings)
    tree.tapes.clear()
    next(iter(tree.folder.glob("*.safetensors"))).unlink()
    assert searcher.run({})["missing"] == pytest.approx(1 / 4)


def test_a_search_waits_for_nobody(project, monkeypatch):
    """Beside a run it would judge trials on data that change; refused, it has begun nothing."""
    monkeypatch.setattr("semspec.pipeline.check_repository", lambda root: None)
    monkeypatch.setattr(launch, "check", lambda root, name: None)
    (project / ".dvc/tmp").mkdir(parents=True, exist_ok=True)
    with FileLock(project / ".dvc/tmp/semspec.lock"), pytest.raises(UserError, match="another run is working here"):
        launch.run(project, "late", config.load(project), False)
    assert not search.folder(project, "late").exists()

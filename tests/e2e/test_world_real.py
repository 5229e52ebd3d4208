"""The small world once, for real and small: the stages of profile `synthetic`, end to end, against the truth."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from semspec import config
from semspec.files import read_json, read_jsonl
from semspec.models import ensure
from semspec.stages import STAGES
from semspec.world import models, report
from semspec.world.models import Recipe

REPO = Path(__file__).resolve().parents[2]
RECIPES = {
    "target": Recipe(hidden=64, layers=2, heads=4, steps=500, lr=5e-3, stop=0.45),
    "draft": Recipe(hidden=48, layers=2, heads=4, steps=500, lr=5e-3, stop=0.7),
}
SMALL = [
    "engine.threads=1",
    "scale.workers=1",
    "contexts.questions=40",
    "sample.n=12",
    "train.predictor=linear",
    "bench.limit=6",
    "bench.methods=[target, draft, semantic]",
    "bench.bootstrap=200",
]


@pytest.mark.model
def test_the_small_world_end_to_end(tmp_path, monkeypatch):
    """A pair is trained, sampled, clustered, probed and compared; clusters, labels and probes agree with the truth."""
    encoder = ensure(config.load(REPO / "tests/defaults").models.encoder)
    (tmp_path / "home/models").mkdir(parents=True)
    (tmp_path / "home/models" / encoder.name).symlink_to(encoder)
    monkeypatch.setenv("SEMSPEC_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(models, "RECIPES", RECIPES)
    monkeypatch.setattr(report, "CONTINUATIONS", 60)
    monkeypatch.setattr(report, "ORACLE", 10)
    shutil.copy(REPO / "tests/defaults/params.yaml", tmp_path)
    config.apply(tmp_path, "synthetic", SMALL)
    settings = config.load(tmp_path)
    for name, stage in STAGES.items():
        if name != "report":  # its page is tested on another pair
            stage(settings, tmp_path)

    truth = read_json(tmp_path / "data/truth.json")
    assert truth["clusters"]["f1"] > 0.9
    assert max(truth["label_error"].values()) < 0.15
    assert truth["probes"]["target"]["spearman_ci"][0] > 0.2
    assert truth["probes"]["draft"]["spearman_ci"][0] > 0.2
    assert truth["decisions"]["labels"]["spearman"] > 0.3
    summary = read_json(tmp_path / "results/bench/summary.json")["methods"]
    assert set(summary) == {"target", "draft", "semantic"} and all(m["n"] == 6 for m in summary.values())
    assert 0 < summary["semantic"]["acceptance_rate"] < 1
    assert summary["draft"]["target_ratio"] == 0 < summary["semantic"]["target_ratio"] < 1
    assert len(read_jsonl(tmp_path / "results/bench/results.jsonl")) == 18
    assert set(truth["end"]["methods"]) == {"target", "draft", "semantic", "oracle"}

"""The small world once, for real and small: the stages of profile `synthetic`, end to end, against the truth."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from semspec import config
from semspec.files import read_json
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
    "contexts.questions=40",
    "sample.n=12",
    "train.predictor=linear",
    "bench.limit=8",
    "bench.methods=[target, draft, semantic]",
    "bench.bootstrap=200",
    "report.max_points=200",
]


@pytest.mark.model
def test_the_small_world_end_to_end(tmp_path, monkeypatch):
    """Labels and probes agree with the truth, the draft's steps are judged one by one, and the results are written."""
    import time

    encoder = ensure("all-minilm-l6-v2")
    (tmp_path / "home/models").mkdir(parents=True)
    (tmp_path / "home/models" / encoder.name).symlink_to(encoder)
    monkeypatch.setenv("SEMSPEC_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(models, "RECIPES", RECIPES)
    monkeypatch.setattr(report, "CONTINUATIONS", 100)
    monkeypatch.setattr(report, "ORACLE", 20)
    shutil.copy(REPO / "params.yaml", tmp_path)
    config.apply(tmp_path, "synthetic", SMALL)
    for name, stage in STAGES.items():
        t = time.time(), time.process_time()
        stage(config.load(tmp_path), tmp_path)
        print("STAGE", name, round(time.time() - t[0], 1), round(time.process_time() - t[1], 1))
    truth = read_json(tmp_path / "data/truth.json")
    summary = read_json(tmp_path / "results/bench/summary.json")
    print(
        truth["clusters"],
        truth["probes"]["target"]["spearman"],
        truth["probes"]["draft"]["spearman"],
        truth["decisions"],
        truth["end"],
    )
    print(summary["methods"])
    1 / 0

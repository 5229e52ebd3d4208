"""Contexts and samples from tiny random models: shapes, both readers' views, resuming, determinism."""

from __future__ import annotations

import json

import numpy as np
import pytest
from project import make_project

from semspec import engine, schema
from semspec.engine import load
from semspec.engine.base import Segment
from semspec.engine.statistics import statistics, unpack
from semspec.files import read_parquet, read_safetensors, sha256, write_json
from semspec.semantics import sampling


def run_sampling(root, settings):
    for role in ("draft", "target"):
        write_json(root / f"data/models/{role}.json", {"name": role})
    sampling.make_contexts(settings, root)
    sampling.sample(settings, root)


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    root = tmp_path_factory.mktemp("project")
    settings = make_project(root)
    run_sampling(root, settings)
    return root, settings


def test_every_sample_is_seen_by_both_models(project):
    """One row per context, author and index; both readers' states are aligned with the rows."""
    root, settings = project
    contexts = read_parquet(root / "data/contexts.parquet")
    samples = read_parquet(root / "data/samples/samples.parquet")
    assert len(contexts) == 6
    assert len(samples) == 6 * 2 * settings.sample.n == samples.sample_id.nunique()
    assert set(samples.author) == {"draft", "target"}
    for role in ("draft", "target"):
        tensors = read_safetensors(root / f"data/samples/{role}.safetensors")
        assert tensors["hidden"].shape == (len(samples), 3, 64) and tensors["hidden"].dtype == np.float16
        scores = unpack(tensors)
        assert len(scores) == len(samples) and all(np.isfinite(statistics(tokens)).all() for tokens in scores)
    own = read_safetensors(root / "data/samples/target.safetensors")["token_count"]
    is_target = (samples.author == "target").to_numpy()
    assert (own[is_target] == samples.n_tokens[is_target]).all()


def test_the_other_models_view_is_a_reading_of_the_same_text(project):
    """The target's row of a draft's sample equals the target reading that text after that context."""
    root, settings = project
    contexts = read_parquet(root / "data/contexts.parquet").set_index("context_id")
    samples = read_parquet(root / "data/samples/samples.parquet")
    at = int(np.flatnonzero((samples.author == "draft") & (samples.stop != "eos"))[0])
    row = samples.iloc[at]
    target = load(settings.models.target, settings.engine)
    context = contexts.loc[row.context_id]
    prompt = sampling.prompt_of(target, context.question, settings.text.system, list(context.steps))
    step = target.session(prompt).read([Segment(row.text)])[0]
    stored = read_safetensors(root / "data/samples/target.safetensors")
    np.testing.assert_allclose(stored["hidden"][at].astype(np.float32), step.pooled, rtol=2e-2, atol=2e-2)
    np.testing.assert_allclose(statistics(unpack(stored)[at]), step.statistics, rtol=1e-3, atol=1e-3)


def test_a_killed_run_redoes_at_most_one_shard(project, tmp_path, monkeypatch):
    """A run that dies in shard 2 keeps shards 0 and 1, and ends with the same bytes as an undisturbed one."""
    root, settings = project
    whole = sampling._sample_shard
    asked: list[str] = []

    def dies(settings, models, part):
        if len(asked) == 2:
            raise KeyboardInterrupt
        asked.append(part[0]["context_id"])
        return whole(settings, models, part)

    again = tmp_path / "again"
    for name in ("data/models/draft.json", "data/models/target.json", "data/contexts.parquet"):
        (again / name).parent.mkdir(parents=True, exist_ok=True)
        (again / name).write_bytes((root / name).read_bytes())
    monkeypatch.setattr(sampling, "_sample_shard", dies)
    with pytest.raises(KeyboardInterrupt):
        sampling.sample(settings, again)
    done = len(asked)
    asked.clear()

    def counts(settings, models, part):
        asked.append(part[0]["context_id"])
        return whole(settings, models, part)

    monkeypatch.setattr(sampling, "_sample_shard", counts)
    sampling.sample(settings, again)
    assert done == 2 and len(asked) == 1
    assert not (again / "data/samples/shards").exists()
    for name in ("samples.parquet", "draft.safetensors", "target.safetensors"):
        assert sha256(again / "data/samples" / name) == sha256(root / "data/samples" / name)


def test_parts_divide_the_shards(project, tmp_path):
    """Parts 1/2 and 2/2 make all shards between them and merge nothing; the plain stage merges to the same bytes.

    Of the shards it removes those alone that it has merged.
    """
    root, settings = project
    again = tmp_path / "again"
    for name in ("data/models/draft.json", "data/models/target.json", "data/contexts.parquet"):
        (again / name).parent.mkdir(parents=True, exist_ok=True)
        (again / name).write_bytes((root / name).read_bytes())
    made = again / "data/samples/shards" / sampling._key(settings, again)
    sampling.sample(settings, again, (2, 2))
    assert [p.name for p in made.glob("*.parquet")] == ["00001.parquet"]
    sampling.sample(settings, again, (1, 2))
    assert len(list(made.glob("*.parquet"))) == 3
    assert not (again / "data/samples/samples.parquet").exists()
    half = again / "data/samples/shards/of-other-settings/00000.parquet"
    half.parent.mkdir()
    half.touch()
    sampling.sample(settings, again)
    for name in ("samples.parquet", "draft.safetensors", "target.safetensors"):
        assert sha256(again / "data/samples" / name) == sha256(root / "data/samples" / name)
    assert half.exists() and not made.exists()


def test_shards_of_other_settings_are_not_used(project, monkeypatch):
    """Another seed, or code that gives other samples, gives another key, so that nothing stale is merged."""
    root, settings = project
    other, key = settings.model_copy(update={"seed": 1}), sampling._key(settings, root)
    assert key != sampling._key(other, root)
    monkeypatch.setattr(sampling, "ARITHMETIC", sampling.ARITHMETIC + 1)
    assert key != sampling._key(settings, root)


def test_contexts_of_a_published_set_in_a_folder(project, tmp_path):
    """`contexts.data_dir` stands in for the hub; the domain asked for is kept."""
    _, settings = project
    (tmp_path / "sets/s1k").mkdir(parents=True)
    rows = [{"id": f"s1k/{i}", "question": f"What is {i} + 1?", "answer": str(i + 1)} for i in range(30)]
    rows = [row | {"domain_guess": "science" if i % 3 else "math"} for i, row in enumerate(rows)]
    (tmp_path / "sets/s1k/s1k_questions.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    chosen = settings.contexts.model_copy(update={"dataset": "s1k:science", "data_dir": str(tmp_path / "sets")})
    sampling.make_contexts(settings.model_copy(update={"contexts": chosen}), tmp_path)
    made = read_parquet(tmp_path / "data/contexts.parquet")
    assert len(set(made.question_id)) == chosen.questions and set(made.domain) == {"science"}
    assert {rows[int(name.partition("/")[2])]["domain_guess"] for name in made.question_id} == {"science"}


def test_shards_of_a_gpu_and_of_a_cpu_are_not_put_together(project, monkeypatch):
    """Where `engine.weights` is auto, its name alone would not tell them apart."""
    root, settings = project
    auto = settings.model_copy(update={"engine": schema.Engine()})
    monkeypatch.setattr(engine, "resolve", lambda weights, device: ("int8", "cpu"))
    here, fixed = sampling._key(auto, root), sampling._key(settings, root)
    monkeypatch.setattr(engine, "resolve", lambda weights, device: ("bf16", "cuda"))
    assert sampling._key(auto, root) != here and sampling._key(settings, root) == fixed

"""Studies: thinning out, other ways to label, predictions out of fold, and the command on made-up samples."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from semspec import cli, config, files, schema
from semspec.engine.statistics import STATISTICS, Tokens, pack
from semspec.errors import UserError
from semspec.probe import evaluation, linear
from semspec.study import labels, learners, predictors, scaling
from semspec.study.columns import Table, out_of_fold

LAYERS, HIDDEN, N, QUESTIONS = 2, 6, 8, 20


def write_samples(root: Path, seed: int = 0) -> None:
    """In each context the models say one of two things, with probabilities that show in their states."""
    rng = np.random.default_rng(seed)
    rows, states = [], {"target": [], "draft": []}
    for i in range(QUESTIONS):
        chance = {"target": rng.uniform(0.1, 0.9), "draft": rng.uniform(0.1, 0.9)}
        for author in ("target", "draft"):
            for index in range(N):
                said = int(rng.random() < chance[author])
                rows.append(
                    (f"q{i}#0/{author}/{index}", f"q{i}#0", f"q{i}", author, index, f"{i} + {said} = {i + said}")
                )
                for role, p in chance.items():
                    value = p if said else 1 - p
                    states[role].append(3 * value + rng.normal(0, 0.1, (LAYERS, HIDDEN)))
    table = pd.DataFrame(rows, columns=["sample_id", "context_id", "question_id", "author", "index", "text"])
    files.write_parquet(root / "data/samples/samples.parquet", table)
    contexts = table.drop_duplicates("context_id")[["context_id", "question_id"]].assign(question="?")
    files.write_parquet(root / "data/contexts.parquet", contexts.assign(steps=[[] for _ in range(len(contexts))]))
    scores = [Tokens(*-rng.exponential(size=(3, k)), np.arange(k) == 0) for k in rng.integers(2, 6, len(rows))]
    for role, values in states.items():
        tensors = {"hidden": np.stack(values).astype(np.float16), **pack(scores)}
        files.write_safetensors(root / f"data/samples/{role}.safetensors", tensors)
    table["cluster"] = table["text"].str.split("=").str[1].astype(int) % 2
    for role in ("target", "draft"):
        own = table[table["author"] == role].groupby(["context_id", "cluster"]).size() / N
        table[f"p_{role}"] = [own.get((c, k), 0.0) for c, k in zip(table["context_id"], table["cluster"], strict=True)]
    keep = ["sample_id", "context_id", "question_id", "author", "cluster", "p_draft", "p_target"]
    files.write_parquet(root / "data/labels.parquet", table[keep])


def settings() -> schema.Settings:
    models = {"draft": "d", "target": "t", "encoder": "e"}
    train = {"folds": 4, "epochs": 10, "hidden_sizes": [8, 4], "ridge": 1.0}
    return config.validate({"models": models, "text": {"system": "s"}, "train": train, "sample": {"n": N}})


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Table:
    root = tmp_path_factory.mktemp("project")
    write_samples(root)
    return Table.load(settings(), root)


@pytest.mark.parametrize(("name", "stage"), [("labels", "cluster"), ("true_labels", "truth")])
def test_labels_of_other_samples_are_refused(name: str, stage: str, tmp_path: Path) -> None:
    """The project's, and the true ones."""
    write_samples(tmp_path)
    other = files.read_parquet(tmp_path / "data/labels.parquet")
    other.attrs["samples_sha256"] = "0" * 64
    files.write_parquet(tmp_path / f"data/{name}.parquet", other)
    with pytest.raises(UserError, match=f"run `semspec stage {stage}`"):
        Table.load(settings(), tmp_path)


def test_every_learner_finds_what_is_there_and_nothing_where_nothing_is(table: Table) -> None:
    """Out of fold, the states rank unseen questions' samples; shuffled labels are not learned."""
    noise = np.random.default_rng(0).permutation(table.label("target"))
    for learner in learners.LEARNERS:
        if learner != "mlp":  # ten epochs are not enough for it
            found = out_of_fold(table, "target", "all layers + statistics", learner)
            assert predictors.judge(table, "target", found.raw)["spearman"] > 0.6, learner
        spoiled = out_of_fold(table, "target", "all layers", learner, label=noise)
        assert abs(evaluation.spearman(spoiled.raw, noise)) < 0.2, learner  # of 320 rows
    assert found.step_us > 0 and found.fit_seconds > 0


def test_fewer_samples_are_recounted(table: Table) -> None:
    """With all samples the labels come back; with fewer they are shares of fewer, of the rows that are left."""
    whole, used = scaling.recount(table, N)
    assert used.all()
    for of in scaling.OF:
        np.testing.assert_allclose(whole[of], table.label(of))
    few, used = scaling.recount(table, 2)
    assert used.sum() == len(table.rows) / 4 and set(np.unique(few["target"])) <= {0.0, 0.5, 1.0}


def test_plans_thin_out_one_thing_at_a_time(table: Table) -> None:
    """Questions are halved whole; samples are those of low index."""
    found = list(scaling.plans(table))
    kept = {n: len(np.unique(table.questions[rows])) for what, n, rows, _, _ in found if what == "questions"}
    assert kept == {QUESTIONS: QUESTIONS} and scaling._halves(200, 12) == [12, 25, 50, 100, 200]
    assert [n for what, n, *_ in found if what.startswith("samples")] == [2, 4, 8]


def test_the_ceiling_is_between_chance_and_one(table: Table) -> None:
    """Halves of the samples agree by more than nothing, whole ones by more than halves."""
    c = scaling.ceiling(table, repeats=4)
    assert 0 < c["target"] < c["target_full"] < 1


def test_transitive_clusters_join_chains() -> None:
    """a = b and b = c puts all three together, though a and c are never said to be the same."""

    def same(pairs: list[tuple[str, str]]) -> list[bool]:
        return [{a, b} in ({"a", "b"}, {"b", "c"}) for a, b in pairs]

    assert labels.transitive(["a", "b", "c", "d", "a"], same) == [0, 0, 0, 1, 0]
    assert labels.transitive(["a"], same) == [0]


def test_shrinking_keeps_the_mean(table: Table) -> None:
    """A prior draws labels to their mean and never to 0."""
    out = labels.shrunk(table, N, 4.0)
    assert out["target"].mean() == pytest.approx(table.label("target").mean())
    assert out["target"].min() > 0 and out["target"].std() < table.label("target").std()


@pytest.mark.parametrize("loss", ["squared", "binomial", "ordinal"])
def test_importance_is_a_count(loss) -> None:
    """A row that counts twice is as good as two, one that counts for nothing is not there."""
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(60, 3)), rng.choice([0.0, 0.1, 0.4, 0.7, 1.0], 60)
    counts = rng.integers(0, 3, 60)
    repeated = np.repeat(np.arange(60), counts)
    found = linear.fit(x, y, 1.0, np.ones(3), loss, counts.astype(float))
    wanted = linear.fit(x[repeated], y[repeated], 1.0, np.ones(3), loss)
    for a, b in zip(found, wanted, strict=True):
        np.testing.assert_allclose(a, b, atol=2e-3)
    assert not np.allclose(found[0], linear.fit(x, y, 1.0, np.ones(3), loss)[0], atol=5e-3)


def test_importance_of_contexts(table: Table) -> None:
    """Each scheme leaves the mean at 1; near-even contexts are the open ones, one-sided ones the certain and agreed."""
    found = labels.importance(table)
    even = -np.abs(table.rows.groupby("context_id")["cluster"].transform("mean").to_numpy() - 0.5)
    for by in found.values():
        assert all(w.mean() == pytest.approx(1) and w.min() >= 0 for w in by.values())
    assert evaluation.spearman(found["open"]["target"], even) > 0.99
    assert evaluation.spearman(found["agreed"]["target"], even) < -0.99
    assert evaluation.spearman(found["certain"]["decision"], even) < -0.5


def test_contexts_of_one_cluster_count_alike(table: Table) -> None:
    """Where all say the same there is no open context, and nothing to divide by."""
    one = dataclasses.replace(table, rows=table.rows.assign(cluster=0))
    assert all((w == 1).all() for w in labels.importance(one)["open"].values())


def test_the_study_of_labels_has_a_row_for_each_way(table: Table) -> None:
    """With a cross-encoder, and without; weights change what is learned, not the labels."""

    class Scores:
        def score(self, pairs):
            return [0.9] * len(pairs)

    contexts = table.rows.drop_duplicates("context_id")[["context_id"]].assign(question="?")
    contexts["steps"] = [[] for _ in range(len(contexts))]
    found = labels.study(table, contexts, Scores(), (Scores(), {"threshold": 0.5, "calculated": 0.5, "alone": 0.95}))
    rows = {r["labels"]: r["learned"]["target"]["spearman"] for r in found["rows"]}
    assert {"gate and cross-encoder", "cross-encoder alone", "open contexts count for more"} <= set(rows)
    assert rows[labels.DEFAULT] == rows["gate and cross-encoder"] > 0.6
    assert rows["open contexts count for more"] not in (rows[labels.DEFAULT], rows["agreed contexts count for more"])
    few = labels.study(table, contexts, None)
    assert {r["labels"] for r in few["rows"]} < set(rows)


def test_statistics_tell_numbers_from_words() -> None:
    """An unlikely word lowers the mean alone; an unlikely number shows in the numbers' own statistics."""
    from semspec.engine.statistics import statistics

    at = {name: i for i, name in enumerate(STATISTICS)}
    zero, number = np.zeros(3), np.array([False, False, True])
    word = statistics(Tokens(np.array([0.0, -5.0, 0.0]), zero, zero, number))
    digit = statistics(Tokens(np.array([0.0, 0.0, -5.0]), zero, zero, number))
    assert word[at["mean_logprob"]] == digit[at["mean_logprob"]]
    assert word[at["sum_logprob_numbers"]] == 0 and digit[at["sum_logprob_numbers"]] == -5
    assert digit[at["max_gap_numbers"]] == 5 and digit[at["likeliest_share"]] == pytest.approx(2 / 3)
    none = statistics(Tokens(zero, zero, zero, np.zeros(3, dtype=bool)))
    assert not none[at["sum_logprob_numbers"] :].any()


@pytest.mark.parametrize("name", ["predictors", "scaling"])
def test_the_command_writes_table_picture_and_figures(name, tmp_path, monkeypatch, capsys) -> None:
    """One study of a whole project, by the command that users type."""
    write_samples(tmp_path)
    (tmp_path / "params.yaml").write_text(json.dumps(settings().model_dump(mode="json")))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(predictors, "VARIANTS", predictors.VARIANTS[:2])
    assert cli.main(["study", name]) == 0
    assert "| Columns |" in capsys.readouterr().out or name == "scaling"
    for suffix in (".json", ".md", ".csv", ".png"):
        assert (tmp_path / f"results/studies/{name}{suffix}").stat().st_size > 0


def test_a_study_without_samples_says_what_to_run(tmp_path, monkeypatch, capsys) -> None:
    """One line and exit code 2."""
    (tmp_path / "params.yaml").write_text(json.dumps(settings().model_dump(mode="json")))
    monkeypatch.chdir(tmp_path)
    assert cli.main(["study", "scaling"]) == 2
    assert capsys.readouterr().err.startswith("error: ")
    with pytest.raises(UserError):
        Table.load(settings(), tmp_path)

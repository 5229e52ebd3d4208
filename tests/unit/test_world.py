"""The small world: forms and meanings, the data set, true clusters and probabilities, training two tiny models."""

from __future__ import annotations

import json
from concurrent.futures import Future
from contextlib import nullcontext
from random import Random
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from semspec import config
from semspec.engine.transformers import load as load_engine
from semspec.errors import UserError
from semspec.files import write_jsonl, write_parquet
from semspec.problems import grade, language, load, sets
from semspec.problems.language import FORMS, Problem, meaning, parse, problem, solution, write
from semspec.semantics.labels import COLUMNS, summary
from semspec.semantics.sampling import prompt_of
from semspec.text import Splitter
from semspec.world import models, truth
from semspec.world.models import Recipe
from semspec.world.oracle import Oracle, met
from semspec.world.report import compare, label_noise, truth_stage

QUESTION = "Start with 17. Add 4. Take 3. What is the result?"


def solved(seed: int) -> tuple[Problem, list[str]]:
    rng = Random(seed)
    made = problem(rng)
    return made, solution(made, rng)


def test_there_are_many_forms_of_every_kind():
    """At least six ways to do one operation; each form is read back as itself, not as another kind."""
    for sign in (1, -1):
        assert sum(f.kind == "one" and f.signs == (sign,) for f in FORMS) >= 6
    for form in FORMS:
        text = form.text
        for name, value in {"a": 20, "b": 4, "d": 3, "m": 24, "c": 27}.items():
            text = text.replace(f"{{{name}}}", str(value))
        readers = [f for f in FORMS if f.pattern.fullmatch(text)]
        assert form in readers and {(f.kind, f.signs) for f in readers} == {(form.kind, form.signs)}


def test_a_question_is_read_back():
    """A problem and its question are the same thing; another text is no question."""
    rng = Random(0)
    for _ in range(200):
        made = problem(rng)
        assert parse(made.question) == made
        values = made.start + np.cumsum([0, *made.changes])
        assert values.min() >= language.LOW and values.max() <= language.HIGH and made.answer == str(values[-1])
        assert len({abs(c) for c in made.changes}) == len(made.changes)
    assert parse("What is 1 + 1?") is None


@pytest.mark.parametrize(("kind", "changes"), [("one", [4]), ("one", [-3]), ("two", [4, -3]), ("two", [-3, -1])])
def test_every_form_of_a_step_means_the_same(kind, changes):
    """Whatever the form, also one that leaves out the running value, the meaning is what is done and its result."""
    texts = {write(kind, 17, changes, Random(i)) for i in range(200)}
    assert len(texts) >= 4
    assert {meaning(QUESTION, [], t + "\n\n") for t in texts} == {
        ("step", tuple(sorted([17, *changes])), 17 + sum(changes))
    }


def test_other_steps_have_other_meanings():
    """A wrong value, another operand, two operations, a state, the answer and a text of no form all differ."""
    steps = [
        "17 + 4 = 21.",
        "17 + 4 = 22.",
        "17 + 5 = 22.",
        "17 - 4 = 13.",
        "17 + 4 - 3 = 18.",
        "We are at 21.",
        "The answer is \\boxed{21}.",
        "17 + 4 = 21, so we have 22.",
        "Hello.",
        "",
    ]
    assert len({meaning(QUESTION, [], s) for s in steps}) == len(steps)
    assert meaning(QUESTION, [], "Hello.\n\n") == ("text", "Hello.")


def test_meaning_depends_on_the_context_only_where_the_step_does():
    """A step without the running value takes it from the last step that can be read, right or wrong."""
    implicit, explicit = "Adding 4 gives 21.", "17 + 4 = 21."
    assert meaning(QUESTION, [], implicit) == meaning(QUESTION, [], explicit)
    assert meaning(QUESTION, ["We are at 16.\n\n", "Hm.\n\n"], implicit) == ("step", (4, 16), 21)
    assert meaning(QUESTION, ["We are at 16.\n\n"], explicit) == ("step", (4, 17), 21)
    assert meaning("Hello?", [], implicit) == ("text", implicit)


def test_a_solution_is_right_and_survives_the_splitter():
    """Steps joined and split are the same steps; what they mean leads from the start to the graded answer."""
    for seed in range(200):
        made, steps = solved(seed)
        assert Splitter("blank_line").split("".join(steps)) == steps
        assert grade("".join(steps), made.answer).correct
        assert not steps[-1].endswith("\n") and all(s.endswith(".\n\n") for s in steps[:-1])
        found = [meaning(made.question, steps[:i], s) for i, s in enumerate(steps)]
        assert found[-1] == ("answer", int(made.answer))
        value, done = made.start, 0
        for said in found[:-1]:
            if said[0] == "step":
                used = len(said[1]) - 1
                assert said[1] == tuple(sorted([value, *made.changes[done : done + used]]))
                value, done = value + sum(made.changes[done : done + used]), done + used
            assert said[-1] == value
        assert done == len(made.changes)


def test_the_data_set():
    """Splits share no question, whatever the seed; the same arguments give the same problems."""
    parts = {(s, seed): load("synthetic", s, 300, seed) for s in sets.SPLITS for seed in (0, 1)}
    asked = {s: {p.question for seed in (0, 1) for p in parts[s, seed]} for s in sets.SPLITS}
    assert (
        not asked["train"] & asked["validation"] | asked["train"] & asked["test"] | asked["validation"] & asked["test"]
    )
    assert all(len({p.question for p in part}) == 300 for part in parts.values())
    assert load("synthetic", "test", 5, 1) == parts["test", 1][:5] != parts["test", 0][:5]
    assert parts["test", 1][4].id == "synthetic/test/1/4"
    assert all(parse(p.question).answer == p.answer for p in parts["test", 0])


def tables(texts: list[str], contexts: list[str]) -> tuple[pd.DataFrame, pd.DataFrame]:
    names = sorted(set(contexts))
    samples = pd.DataFrame({"sample_id": range(len(texts)), "context_id": contexts, "text": texts})
    samples["question_id"], samples["author"] = samples["context_id"], ["target", "draft"] * (len(texts) // 2)
    steps = [np.array([], dtype=object)] * len(names)  # as a parquet file gives them
    return samples, pd.DataFrame({"context_id": names, "question": QUESTION, "steps": steps})


def test_true_clusters():
    """Equal meanings share a cluster, counted within each context."""
    texts = ["17 + 4 = 21.\n\n", "Adding 4 gives 21.\n\n", "17 + 4 = 20.\n\n", "We are at 17.\n\n"]
    samples, contexts = tables([*texts, *texts[2:]], ["a"] * 4 + ["b"] * 2)
    assert truth.true_clusters(samples, contexts).tolist() == [0, 0, 1, 2, 0, 1]


class Script:
    """An engine that writes the same few texts in turn."""

    def __init__(self, *texts: str):
        self.texts, self.calls = texts, []

    def chat(self, question, system):
        return [1]

    def encode(self, text):
        return [2]

    def sample_many(self, prompts, n, step_ends, sampling, max_tokens, seeds):
        self.calls.append((n, sampling.temperature, sampling.top_p, max_tokens, *seeds))
        return [[SimpleNamespace(text=self.texts[i % len(self.texts)]) for i in range(n)] for _ in prompts]


def test_true_probabilities_and_labels(tmp_path):
    """Shares of meanings over all continuations, drawn as the settings say; labels look like those of the stage."""
    settings = config.load(config.PROFILES.parents[2])
    samples, contexts = tables(["17 + 4 = 21.\n\n", "4 + 17 = 21.\n\n", "17 + 4 = 20.\n\n", "Hm.\n\n"], ["a"] * 4)
    target = Script("17 + 4 = 21.\n\n", "Adding 4 gives 21.\n\n", "17 + 4 = 20.\n\n", "We are at 17.\n\n")
    draft = Script("17 + 4 = 20.\n\n", "17 + 4 - 3 = 18.\n\n")
    n = 2 * truth.ROWS + 40
    asked = [(contexts["question"][0], list(contexts["steps"][0]))]
    p, q = ({"a": truth.shares(model, asked, n, settings)[0]} for model in (target, draft))
    assert p["a"] == {("step", (4, 17), 21): 0.5, ("step", (4, 17), 20): 0.25, ("state", 17): 0.25}
    assert [c[0] for c in target.calls] == [truth.ROWS, truth.ROWS, 40]
    assert len({c[-1] for c in target.calls}) == 3
    chosen = settings.sample
    assert {c[1:4] for c in target.calls} == {(chosen.temperature, chosen.top_p, settings.text.max_step_tokens)}
    labels = truth.true_labels(samples, contexts, {"target": p, "draft": q})
    assert list(labels.columns) == COLUMNS and labels["cluster"].tolist() == [0, 0, 1, 2]
    assert labels["p_target"].tolist() == [0.5, 0.5, 0.25, 0.0]
    assert labels["p_draft"].tolist() == [0.0, 0.0, 0.5, 0.0]
    assert summary(labels)["clusters_per_context"] == 3


def test_an_oracle_that_looked_ahead_says_the_same():
    """p, q and the verdict are those of an oracle that looks when asked; what was foreseen is not drawn again."""
    named = {"models": {"draft": "d", "target": "t", "encoder": "e"}, "text": {"system": ""}}
    settings = config.validate({**named, "decide": {"rule": "ratio", "threshold": 0.5}})
    says = {"target": ["17 + 4 = 21.\n\n", "17 + 4 = 20.\n\n"], "draft": ["17 + 4 = 20.\n\n", "Hm.\n\n"]}
    trace = [{"text": "17 + 4 = 20.\n\n"}, {"text": "17 leaves 18."}]
    rows = [{"method": m, "question": QUESTION, "trace": trace} for m in ("semantic", "target", "semantic")]
    assert met(rows) == [(QUESTION, []), (QUESTION, ["17 + 4 = 20.\n\n"])]
    judged, calls = {}, {}
    for foreseen in (met(rows), []):
        models = {role: Script(*texts) for role, texts in says.items()}
        drawn = {role: truth.shares(model, foreseen, 4, settings) for role, model in models.items()}
        known = {(q, *steps): {r: drawn[r][i] for r in drawn} for i, (q, steps) in enumerate(foreseen)}
        oracle = Oracle(**models, n=4, settings=settings, known=known)
        before = len(models["draft"].calls)
        step = SimpleNamespace(text="17 + 4 = 20.\n\n")
        judged[bool(foreseen)] = oracle([step], [step], QUESTION, [])
        calls[bool(foreseen)] = len(models["draft"].calls) - before
    assert judged[True] == judged[False] and calls == {True: 0, False: 1}
    (judgement,) = judged[True]
    assert (judgement.p, judgement.q, judgement.a) == (0.5, 0.5, 1.0)


def test_the_oracle_answers_what_the_bench_did(tmp_path):
    """With answers to other problems the comparison would be of unlike things: it says so before any work."""
    named = {"models": {"draft": "d", "target": "t", "encoder": "e"}, "text": {"system": ""}}
    settings = config.validate(
        {**named, "contexts": {"dataset": "synthetic"}, "bench": {"dataset": "synthetic", "limit": 2}}
    )
    for part in ("contexts", "samples/samples", "labels"):
        write_parquet(tmp_path / f"data/{part}.parquet", pd.DataFrame())
    write_jsonl(tmp_path / "results/bench/graded.jsonl", [{"id": "another", "method": "target"}])
    with pytest.raises(UserError, match="run `semspec stage bench` first"):
        truth_stage(settings, tmp_path)


def test_agreement_by_hand():
    """Three of one meaning and one of another, found as two and two: 1 pair right, 1 wrong, 2 missed."""
    found = truth.agreement([0, 0, 1, 1], [0, 0, 0, 1], ["a"] * 4)
    assert found["precision"] == pytest.approx(1 / 2) and found["recall"] == pytest.approx(1 / 3)
    assert found["f1"] == pytest.approx(2 / 5) and found["rand"] == pytest.approx(0)
    perfect = truth.agreement([5, 5, 6, 0], [0, 0, 1, 0], ["a", "a", "a", "b"])
    assert perfect == {"precision": 1, "recall": 1, "f1": 1, "rand": 1}
    pooled = truth.agreement([0, 0, 1, 1, 0, 0], [0, 0, 0, 1, 0, 0], ["a"] * 4 + ["b"] * 2)
    assert pooled["f1"] == pytest.approx(4 / 7) and pooled["rand"] == pytest.approx(1 / 2)


class Here:
    """Workers that are this process; of other processes tests/unit/test_workers.py and the small world's run tell."""

    counted = 0

    def count(self, n=1):
        self.counted += n

    def submit(self, work, *args):
        future = Future()
        future.set_result(work(*args))
        return future


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    recipes = {
        "target": Recipe(32, 2, 2, steps=5, lr=1e-3, batch=8),
        "draft": Recipe(16, 1, 2, steps=30, lr=1e-3, stop=99.0, batch=8),
    }
    seen: list[tuple[int, int]] = []
    pool = Here()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(models, "workers", lambda n: nullcontext(pool))
        patch.setattr(models, "count", pool.count)
        folders = models.train_pair(tmp_path_factory.mktemp("pair"), 1, lambda *x: seen.append(x), recipes)
    return recipes, folders, seen


def test_training_leaves_folders_that_load(pair):
    """Two model folders of one vocabulary; an engine writes with them; what exists is not trained over."""
    recipes, folders, seen = pair
    assert seen == [(35, 35)], "what a model leaves out, having learned enough, counts as done"
    engines = {role: load_engine(path, role, weights="fp32", device="cpu", threads=1) for role, path in folders.items()}
    assert engines["target"].vocab_id == engines["draft"].vocab_id
    assert {r: (e.hidden_size, e.n_layers) for r, e in engines.items()} == {"target": (32, 2), "draft": (16, 1)}
    assert sorted(p.name for p in folders["target"].parent.iterdir()) == ["draft", "target"]
    with pytest.raises(UserError, match="exists already"):
        models.train_pair(folders["target"].parent, 1, None, recipes)


def test_models_read_what_they_learned_from(pair):
    """An engine's prompt and steps are the tokens of the training rows; no system prompt; few tokens a step."""
    _, folders, _ = pair
    engine = load_engine(folders["draft"], "draft", weights="fp32", device="cpu", threads=1)
    corpus = models.make_corpus(30, 1)
    for (question, steps), (prompt, answer) in zip(corpus, models.encode(engine.tokenizer, corpus), strict=True):
        assert engine.chat(question, "Be brief.") == prompt
        assert prompt_of(engine, question, "", steps) == [*prompt, *answer[:-1]] and answer[-1] == engine.eos_id
        assert engine.decode(answer) == "".join(steps)
        assert engine.encode("".join(steps)) == answer[:-1]
        assert len(answer) <= 16 * len(steps)


def test_a_corpus_holds_training_questions_only():
    """No question of another split is learned."""
    asked = {question for question, _ in models.make_corpus(400, 0)}
    assert asked == {p.question for p in load("synthetic", "train", 100, 0)}


def test_truth_against_itself_and_against_noise():
    """True labels given as found ones are without error; shuffled predictions agree with nothing."""
    rng = np.random.default_rng(0)
    shares = {r: {f"c{i}": {"a": 0.7, "b": 0.3} for i in range(30)} for r in ("draft", "target")}
    n = 30 * 4
    true = pd.DataFrame(
        {
            "sample_id": [f"s{i}" for i in range(n)],
            "context_id": np.repeat([f"c{i}" for i in range(30)], 4),
            "question_id": np.repeat([f"q{i}" for i in range(30)], 4),
            "author": ["draft", "target"] * (n // 2),
            "cluster": rng.integers(0, 2, n),
            "p_draft": rng.choice([0.3, 0.7, 0.9], n),
            "p_target": rng.choice([0.0, 0.3, 0.7], n),
        }
    )
    right = true[["sample_id"]].assign(pred_draft=true["p_draft"], pred_target=true["p_target"])
    out = compare(true, true, right, shares, 0)
    assert out["clusters"]["f1"] == 1 and out["label_error"] == {"draft": 0, "target": 0}
    assert out["decisions"]["labels"]["agreement"] == out["decisions"]["ratio"]["agreement"] == 1
    assert out["probes"]["target"]["spearman"] == pytest.approx(1)
    noise = right.assign(pred_target=rng.permutation(right["pred_target"]), pred_joint=0.5)
    worse = compare(true, true, noise, shares, 0)
    assert abs(worse["probes"]["target"]["spearman"]) < 0.4 and worse["decisions"]["joint"]["spearman"] == 0


def test_labels_of_its_own_samples_alone_are_no_decision():
    """A model's own labels have no p for the draft's samples: no figure of that rule, and no NaN in the file."""
    true = pd.DataFrame(
        {
            "sample_id": [f"s{i}" for i in range(8)],
            "context_id": np.repeat(["c0", "c1"], 4),
            "question_id": np.repeat(["q0", "q1"], 4),
            "author": ["draft", "target"] * 4,
            "cluster": [0, 0, 1, 1] * 2,
            "p_draft": [0.3, 0.7, 0.3, 0.9] * 2,
            "p_target": [0.1, 0.7, 0.3, 0.5] * 2,
        }
    )
    draft = true["author"] == "draft"
    own = true.assign(p_target=true["p_target"].mask(draft), p_draft=true["p_draft"].mask(~draft))
    predicted = true[["sample_id"]].assign(pred_draft=true["p_draft"], pred_target=true["p_target"])
    shares = {r: {"c0": {"a": 0.7, "b": 0.3}, "c1": {"a": 0.5, "b": 0.5}} for r in ("draft", "target")}
    out = compare(true, own, predicted, shares, 0)
    assert set(out["decisions"]) == {"ratio"} and "NaN" not in json.dumps(out)


def test_label_noise_falls_with_the_root_of_the_samples():
    """Four times the samples, half the error."""
    shares = {f"c{i}": {"a": 0.5, "b": 0.5} for i in range(4000)}
    few, many = label_noise(shares, 10, 0), label_noise(shares, 40, 0)
    assert 0.1 < few < 0.15 and many == pytest.approx(few / 2, rel=0.1)


def test_the_stage_truth_has_nothing_to_say_of_other_problems(tmp_path):
    """Where meaning cannot be computed the file is there, and empty."""
    settings = config.validate({"models": {"draft": "d", "target": "t", "encoder": "e"}, "text": {"system": "s"}})
    truth_stage(settings, tmp_path)
    assert (tmp_path / "data/truth.json").read_text().strip() == "{}"

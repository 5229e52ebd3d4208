"""Tuning: a replay is the real thing, its cost is what was done, and a search survives being killed."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
import textwrap
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import optuna
import pytest
from fakes import FakeEngine, blank_line

from semspec import config, files, schema
from semspec.decoding import Semantic, Setup
from semspec.decoding.acceptance import Judgement
from semspec.decoding.target import Target
from semspec.engine.base import Sampling, Segment
from semspec.errors import UserError
from semspec.planning.cost import Cost, Curve, Prices, measured_once
from semspec.tuning import command, launch, live, material, search, space, trees
from semspec.tuning.fits import Fits
from semspec.tuning.replay import FACTS, RecordedEngine
from semspec.tuning.tape import Missing, Tape, key

REPO = Path(__file__).resolve().parents[2]
SETUP = Setup("Think.", blank_line, max_step_tokens=12, max_tokens=60)
DRAFT = ["one is 1\n\n", "two is 3\n\n", "three\n\n", "so 4"]
TARGET = ["one is 1\n\n", "two is 2\n\n", "three is three\n\n", "so 5"]


class ByStates:
    """Keeps a step with a probability made of what both models computed, so that a wrong state shows."""

    layers = {"draft": (0, 2), "target": (1,)}  # noqa: RUF012

    def __call__(self, written: Any, read: Any, question: str, said: Any) -> list[Judgement]:
        out = []
        for w, r in zip(written, read, strict=True):
            assert w.pooled.shape[0] == 2 and r.pooled.shape[0] == 1
            p = float((np.float16(w.pooled).sum() + np.float16(r.pooled).sum() + w.statistics.sum()) % 1)
            out.append(Judgement(p, 1.0, p, False, p))
        return out


def pair(chars: int) -> dict[str, FakeEngine]:
    """A draft, and a target whose tokens are `chars` characters long."""
    return {"draft": FakeEngine("draft", DRAFT), "target": FakeEngine("target", TARGET, chars=chars)}


def recorded(models: dict[str, FakeEngine], live: bool = True) -> dict[str, RecordedEngine]:
    facts = {role: {k: getattr(m, k) for k in FACTS} for role, m in models.items()}
    return {r: RecordedEngine(r, facts[r], models.get if live else lambda role: None) for r in models}


def start(engines: dict[str, RecordedEngine], tape: Tape) -> None:
    for e in engines.values():
        e.start(tape)


def answer(engines: Any, gamma: int, seed: int = 0) -> Any:
    """What a run gives, without its seconds, and without passes, which a scripted model does not count."""
    found = Semantic(SETUP, engines["draft"], engines["target"], ByStates(), gamma).answer("Q?", seed)
    trace = tuple(replace(s, seconds=0.0, passes=0) for s in found.trace)
    return replace(found, seconds=0.0, phases={}, trace=trace, target_passes=0)


@pytest.mark.parametrize("chars", [1, 2])
@pytest.mark.parametrize("gamma", [1, 2, 3])
def test_a_replay_is_the_real_thing(tmp_path, chars, gamma):
    """Same texts, verdicts and counts as with the models, first while recording, then from the file alone."""
    path, verdicts = tmp_path / "q.safetensors", set()
    for seed in range(8):
        real = answer(pair(chars), gamma, seed)
        engines, tape = recorded(pair(chars)), Tape.load(path)
        start(engines, tape)
        assert answer(engines, gamma, seed) == real
        tape.save()
        engines = recorded(pair(chars), live=False)
        start(engines, Tape.load(path))
        assert answer(engines, gamma, seed) == real
        verdicts |= {s.accepted for s in real.trace}
    assert verdicts >= {True, False}


@pytest.mark.parametrize("gamma", [1, 3])
def test_work_is_what_the_models_would_have_done(gamma):
    """Tokens written and read by each model, as a scripted model counts its own passes."""
    models = pair(1)
    answer(models, gamma, seed=1)
    engines = recorded(pair(1))
    start(engines, Tape(Path("none")))
    answer(engines, gamma, seed=1)
    for role, model in models.items():
        (session,) = model.sessions
        done = {kind: [n for k, n in session.calls if k == kind] for kind in ("generate", "read", "follow")}
        assert engines[role].passes == Counter({1: sum(done["generate"])}) + Counter(
            [session.n_prompt, *done["read"], *done["follow"]]
        )


def test_plain_decoding_is_replayed_too():
    """The target alone follows from the steps that a rejection asks for."""
    models = pair(1)
    engines = recorded(pair(1))
    start(engines, Tape(Path("none")))
    assert Target(SETUP, engines["target"]).answer("Q?").text == Target(SETUP, models["target"]).answer("Q?").text
    assert not engines["draft"].passes


def test_a_gap_without_models_is_missing():
    """Nothing is made up."""
    engines = recorded(pair(1), live=False)
    start(engines, Tape(Path("none")))
    with pytest.raises(Missing):
        answer(engines, 1)


def test_a_recorded_model_is_greedy_and_rolls_back_no_prompt():
    """What a tape cannot answer is refused, not guessed."""
    engine = recorded(pair(1))["draft"]
    engine.start(Tape(Path("none")))
    session = engine.session(engine.chat("Q?", ""))
    with pytest.raises(ValueError, match="greedy"):
        session.generate(blank_line, Sampling(temperature=0.5), 4)
    session.read([Segment("ab", tokens=engine.encode("ab"))])
    session.rollback(2)
    with pytest.raises(ValueError, match="roll back"):
        session.rollback(1)


def test_two_processes_add_to_one_tape(tmp_path):
    """Saving joins what another one has written meanwhile; states keep their place and their bytes."""
    path = tmp_path / "q.safetensors"
    tapes = [Tape.load(path), Tape.load(path)]
    session = pair(1)["draft"].session([1, 2, 3])
    steps = [session.generate(blank_line, Sampling(), 12) for _ in tapes]
    for i, (tape, step) in enumerate(zip(tapes, steps, strict=True)):
        tape.step(key("draft", "write", i), lambda s=step: s, seen=True)
        tape.value(f"v{i}", lambda i=i: i)
        tape.save()
    both = Tape.load(path)
    assert both.values == {"v0": 0, "v1": 1}
    for i, step in enumerate(steps):
        kept = both.step(key("draft", "write", i), lambda: pytest.fail("not there"), seen=True)
        assert kept.tokens == step.tokens and kept.text == step.text
        assert np.array_equal(kept.pooled, step.pooled.astype(np.float16))
        assert np.array_equal(kept.statistics, step.statistics)


def test_cost_adds_up_and_is_measured_once(tmp_path):
    """Seconds are prices times counts; a second search on this machine reads them again."""
    draft, target = Curve((1, 2, 3), (1.0, 1.5, 2.0)), Curve((1, 2, 3), (2.0, 2.2, 2.4))
    less = Curve((1, 2, 3), (0.5, 0.55, 0.6)), Curve((1, 2, 3), (1.0, 1.1, 1.2))  # where nothing is pooled
    cost = Cost(Prices(draft, *less[:1] * 2), Prices(target, *less[1:] * 2), judge=0.5)
    work = {"draft": {1: 10, 2: 2, 5: 1}, "target": {1: 1, 7: 1}}
    assert cost.seconds(work, "judged", 2) == pytest.approx(1 + 10 + 2 * 0.55 + 0.7 + 1.0 + 3.2)  # 5, 7: beyond
    assert cost.seconds(work, "verified") == pytest.approx(5 + 2 * 0.55 + 0.7 + 1.0 + 1.6)
    assert Cost.from_json(cost.to_json()) == cost
    found = [measured_once(tmp_path, {"models": "a"}, lambda c=c: c) for c in (cost, Cost(cost.target, cost.draft))]
    assert found == [cost, cost]
    assert measured_once(tmp_path, {"models": "b"}, lambda: replace(cost, judge=1.0)).judge == 1.0


# --- the space


def settings(*overrides: str) -> schema.Settings:
    data = config.load(REPO / "tests/defaults").model_dump()
    for text in overrides:
        config.put(data, *config.parse_override(text))
    return config.validate(data)


def test_what_is_recorded_belongs_to_the_engines_that_gave_it(tmp_path):
    """Another engine, number format or number of threads of either model has a tree, and prices, of its own."""
    for role in ("draft", "target"):
        (tmp_path / f"data/models/{role}.json").parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / f"data/models/{role}.json").write_text('{"name": "m"}')
    changes = ["seed=0", "engine.kind=llamacpp", "engine.draft.kind=llamacpp", "engine.target.weights=bf16"]
    changes += ["engine.weights=fp32", "engine.draft.threads=1", "engine.target.device=cuda"]
    assert len({trees._name(settings(change), tmp_path) for change in changes}) == len(changes)
    assert trees._name(settings("engine.batch_rows=7"), tmp_path) == trees._name(settings(), tmp_path)


def test_every_draw_is_a_valid_change():
    """Whatever is drawn passes the settings' own checks; layers exist; idle choices are left out."""
    chosen = settings("tune.search=[decide, gamma, probe, layers, labels, split]")
    layers = {"draft": 6, "target": 9}
    ranking = {role: list(np.random.default_rng(0).random(n)) for role, n in layers.items()}
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=0))
    seen = set()
    for _ in range(200):
        drawn = space.suggest(study.ask(), chosen, layers, lambda: ranking)
        made = search.changed(chosen, drawn)
        for role, n in layers.items():
            one = made.train.layers_of(role)
            assert one in ("all", "last") or (one and max(one) < n and sorted(set(one)) == one)
        assert made.train.predictor == "mlp" or "train.hidden_sizes" not in drawn
        assert made.train.features != "logprob" or "train.layers" not in drawn
        assert made.cluster.labels == "cross" or made.decide.rule != "joint"
        assert made.decide.threshold is None or made.decide.bias == 0
        seen.add((made.text.split, made.bench.gamma, len(made.train.hidden_sizes)))
    assert len({s for s, _, _ in seen}) == 2 and {d for _, _, d in seen} == {1, 2, 3}


def test_only_what_is_asked_for_is_searched():
    study = optuna.create_study()
    drawn = space.suggest(study.ask(), settings("tune.search=[gamma]"), {}, dict)
    assert list(drawn) == ["bench.gamma"]


def test_layers_by_score_and_by_place():
    assert space.best([0.1, 0.9, 0.3, 0.8], 2) == [1, 3]
    assert space.stretch(10, 0.2, 0.4) == [2, 3, 4, 5]
    assert space.stretch(2, 0.8, 1.0) == [1]


def test_other_labels_are_made_with_the_projects_cross_encoder(tmp_path, monkeypatch):
    """It is linked like the samples; with another one, labels are made anew."""
    base = settings("cluster.entailment=crossencoder")
    own = settings("cluster.entailment=crossencoder", "cluster.labels=own")
    for name in (*material.SAMPLES, "entailment/calibration.json", "entailment/model.safetensors"):
        (tmp_path / "data" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "data" / name).write_text("{}")
    asked: list[Path] = []
    monkeypatch.setattr(material.stages, "cluster", lambda settings, root: asked.append(root))
    made = material.folder(own, base, tmp_path)
    assert (made / "data/entailment/model.safetensors").resolve() == tmp_path / "data/entailment/model.safetensors"
    assert (made / "data/samples/samples.parquet").exists() and material.folder(own, base, tmp_path) == made
    (tmp_path / "data/entailment/model.safetensors").write_text("another")
    again = material.folder(own, base, tmp_path)
    assert asked == [made, again] and again != made


def test_equal_probes_meet(tmp_path):
    """What a part does not depend on is not in its key: a rule's threshold, a network's width for the joint one."""
    (tmp_path / "data").mkdir()
    (tmp_path / "data/labels.parquet").write_bytes(b"labels")
    fits = Fits(tmp_path, tmp_path)
    base = settings("train.predictor=linear")
    same = settings("train.predictor=linear", "train.dropout=0.3", "decide.threshold=0.9")
    network = settings("train.predictor=mlp", "train.hidden_sizes=[8]")
    assert fits._key("draft", base) == fits._key("draft", same)
    assert fits._key("joint", base) == fits._key("joint", network)
    assert fits._key("draft", base) != fits._key("draft", network)
    assert fits._key("draft", base) != fits._key("draft", settings("train.predictor=linear", "train.layers=last"))
    assert fits._key("draft", base) != fits._key("draft", settings("train.predictor=linear", "train.ridge=3"))


# --- the search


def found(number: int, right: float, seconds: float, missing: float = 0.0) -> search.Found:
    both = search.combined(right, seconds, 0.2)
    return search.Found(number, {"bench.gamma": number}, right, seconds, seconds, both, missing, {})


def test_front_winner_and_shortlist():
    """The front is what nothing beats; limits rule out; a shortlist spreads over speed before it repeats."""
    trials = [found(0, 0.9, 1.0), found(1, 0.5, 0.4), found(2, 0.8, 1.2), found(3, 0.9, 1.0), found(4, 0.7, 0.5)]
    assert [t.number for t in search.front(trials)] == [1, 4, 0]
    free, tight = settings("tune.price=0.2"), settings("tune.latency_limit=0.8")
    assert search.best(trials, free).number == 0
    assert search.best(trials, tight).number == 4
    assert search.best([found(0, 1.0, 0.1, missing=0.5)], free) is None
    assert {t.number for t in search.shortlist(trials, free, 3)} == {0, 1, 4}
    assert [t.number for t in search.shortlist(trials, free, 9)] == [0, 1, 4, 2]


def test_what_ran_beyond_the_limit_is_no_winner():
    ran = [live.Live(n, 0.5, 1.0, ratio, combined, {}) for n, ratio, combined in ((0, 0.9, 0.8), (1, 0.7, 0.2))]
    assert [v.number for v in live.order(ran, None)] == [0, 1]
    assert [v.number for v in live.order(ran, 0.8)] == [1] and live.order(ran, 0.5) == []


KILLED = """
import os, psutil, sys, time
from pathlib import Path
from semspec import config
from semspec.tuning import search
settings = config.load(sys.argv[2])
study = search.open_study(Path(sys.argv[1]), settings)
trial, drawn = search._ask(study, Path(sys.argv[1]), settings, lambda t: {"x": t.suggest_float("x", 0, 1)})
print(trial.number, drawn["x"], flush=True)
time.sleep(600)
"""


def test_a_killed_trial_is_failed_and_queued_again(tmp_path):
    """After kill -9 the next process runs the same parameters; a live process's trial is left alone."""
    command_line = [sys.executable, "-c", textwrap.dedent(KILLED), str(tmp_path), str(REPO / "tests/defaults")]
    children = [subprocess.Popen(command_line, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    try:
        drawn = dict(child.stdout.readline().split() for child in children)
        victim = children[0]
        victim.send_signal(signal.SIGKILL)
        victim.wait()
        study = search.open_study(tmp_path, settings())
        lost = next(t for t in study.trials if t.user_attrs["process"][0] == victim.pid)
        assert search.requeue(study) == 1 and search.requeue(study) == 0
        states = [t.state.name for t in study.trials]
        assert sorted(states) == ["FAIL", "RUNNING", "WAITING"] and states[lost.number] == "FAIL"
        again, _ = search._ask(study, tmp_path, settings(), lambda t: {"x": t.suggest_float("x", 0, 1)})
        assert again.params["x"] == float(drawn[str(lost.number)])
        assert again.user_attrs["again"] == lost.number
    finally:
        for child in children:
            child.kill()
            child.wait()


def test_a_resumed_sampler_draws_new_trials(tmp_path):
    """The seed moves on with the study, or a resumed search would repeat its random start."""
    draws = []
    for _ in range(2):
        study = search.open_study(tmp_path, settings())
        draws.append(study.ask().suggest_float("x", 0, 1))
    assert draws[0] != draws[1]


def test_a_torn_line_costs_one_event(tmp_path):
    """A journal that ends in the middle of a line can be gone on with."""
    out = search.begin(tmp_path, "s", settings())
    study = search.open_study(out, settings())
    study.tell(study.ask(), [1.0, 1.0])
    with (out / search.JOURNAL).open("ab") as f:
        f.write(b'{"op_code":4,"wor')
    search.begin(tmp_path, "s", settings())
    study = search.open_study(out, settings())
    study.tell(study.ask(), [0.5, 1.0])
    assert len(search.open_study(out, settings()).trials) == 2


def test_one_name_is_one_search(tmp_path):
    """More trials may be asked for; other parameters may not."""
    search.begin(tmp_path, "s", settings())
    search.begin(tmp_path, "s", settings("tune.trials=7", "tune.workers=3"))
    with pytest.raises(UserError, match="--name"):
        search.begin(tmp_path, "s", settings("bench.gamma=2"))


def test_one_winner_after_another(tmp_path):
    """Each is applied to what the search began with, and the search goes on after each of them."""
    shutil.copy(REPO / "tests/defaults/params.yaml", tmp_path)
    begun = config.load(tmp_path)
    out = search.begin(tmp_path, "s", begun)
    (out / "table.md").write_text("")
    wins = [{"bench.gamma": 2, "decide.rule": "ratio", "decide.threshold": None}, {"bench.gamma": 3}]
    for number, win in enumerate(wins):
        search.begin(tmp_path, "s", config.load(tmp_path))
        files.write_json(out / "results.json", {"winner": {"number": number, "overrides": win}})
        assert "not written" in launch.conclusion(tmp_path, "s", write=False)
        search.begin(tmp_path, "s", config.load(tmp_path))
        launch.conclusion(tmp_path, "s", write=True)
        assert config.load(tmp_path) == search.changed(begun, win)
    search.begin(tmp_path, "s", config.load(tmp_path))
    with pytest.raises(UserError, match="other parameters"):
        search.begin(tmp_path, "s", search.changed(begun, {"bench.gamma": 4}))


def test_an_applied_winners_labels_are_not_taken_for_those_of_the_beginning(tmp_path, monkeypatch):
    """The project's data are made as its params.yaml says; a trial with other labels has its own."""
    asked = []
    monkeypatch.setattr(search.material, "folder", lambda mine, base, root: asked.append((mine, base)) or root)
    monkeypatch.setattr(search, "questions", lambda settings: [object()])
    monkeypatch.setattr(search.Fits, "probes", lambda *args: {})
    begun = settings("cluster.labels=cross")
    config.write(tmp_path, search.changed(begun, {"cluster.labels": "own", "decide.rule": "ratio"}))
    search.Searcher(tmp_path, begun, None).probes(begun)
    ((mine, base),) = asked
    assert (mine.cluster.labels, base.cluster.labels) == ("cross", "own")


def test_the_winner_goes_to_params_with_a_diff(tmp_path):
    """Shown without a change, then changed with every comment kept."""
    shutil.copy(REPO / "tests/defaults/params.yaml", tmp_path)
    before = (tmp_path / "params.yaml").read_text()
    wins = {"bench.gamma": 2, "train.layers": {"draft": [1, 2], "target": [3]}, "decide.threshold": None}
    shown = command.apply(tmp_path, wins, write=False)
    assert (tmp_path / "params.yaml").read_text() == before
    assert "-  gamma: 1 #" in shown and "+  gamma: 2 #" in shown
    assert command.apply(tmp_path, wins, write=True) == shown
    made = config.load(tmp_path)
    assert made.bench.gamma == 2 and made.train.layers_of("target") == [3] and made.decide.threshold is None
    assert (tmp_path / "params.yaml").read_text().count("#") == before.count("#")
    assert command.apply(tmp_path, wins, write=True) == ""


def test_no_test_question_is_searched_on(tmp_path, monkeypatch):
    """A file that trains or tests is refused."""
    from semspec.tuning import trees

    with pytest.raises(UserError, match="training or test"):
        trees.questions(settings("tune.dataset=a.jsonl", "bench.dataset=a.jsonl"))
    with pytest.raises(UserError, match="training or test"):
        trees.questions(settings("tune.dataset=./a.jsonl", f"contexts.dataset={Path.cwd() / 'a.jsonl'}"))
    (tmp_path / "b.jsonl").write_text('{"id": "1", "question": "1+1?", "answer": 2}\n')
    monkeypatch.chdir(tmp_path)
    assert [p.id for p in trees.questions(settings("tune.dataset=b.jsonl"))] == ["1"]


def test_layers_of_each_model_are_checked():
    """A mapping needs both models and nothing else."""
    both = settings("train.layers={draft: [0], target: [1]}").train
    assert both.layers_of("draft") == [0] and both.layers_of("target") == [1]
    assert settings().train.layers_of("draft") == "all"
    for wrong in ("{draft: [0]}", "{draft: [0], target: [1], other: [2]}", "every"):
        with pytest.raises(UserError, match=r"train\.layers"):
            settings(f"train.layers={wrong}")


def test_importances_find_the_parameter_that_decides(tmp_path):
    """Of two parameters only one moves both objectives."""
    study = search.open_study(tmp_path, settings())
    rng = np.random.default_rng(0)
    for _ in range(60):
        trial = study.ask()
        x, _ = trial.suggest_float("matters", 0, 1), trial.suggest_float("does not", 0, 1)
        right, seconds = x + 0.01 * rng.normal(), 1 + x
        trial.set_user_attr("pass_at_1", right)
        trial.set_user_attr("latency_s", seconds)
        study.tell(trial, [right, seconds])
    for shares in command.importances(study).values():
        assert shares["matters"] > 0.8

"""Methods made from settings, and one answer in the terminal."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from fakes import FakeSession, ScriptedProbe
from rich.console import Console
from scripted import DRAFT, NO, TARGET, YES, check, engines

from semspec import decoding, schema
from semspec.bench.command import bench
from semspec.config import validate
from semspec.decoding.base import Answer, Method, TraceStep
from semspec.engine.base import Proposal
from semspec.errors import UserError
from semspec.files import sha256, write_json
from semspec.schema import Settings
from semspec.solve import View, solve


@pytest.fixture
def settings() -> Settings:
    return validate(
        {
            "models": {"draft": "small", "target": "large", "encoder": "none"},
            "text": {"system": "sys"},
            "bench": {"gamma": 2, "max_tokens": 200},
        }
    )


def test_build_takes_the_rules_from_the_settings(settings: Settings):
    """Every method by name obeys the settings' budget, prompt and splitter."""
    long = tuple(f"Step number {k} is here.\n\n" for k in range(20))
    draft, target = engines(draft=long, target=long)
    own = {"draft": ScriptedProbe(1.0), "target": ScriptedProbe(YES)}
    probes = own | {"semantic_last_hidden": own, "semantic_cross_domain": own}
    for name in decoding.METHODS:
        method = decoding.build(name, settings, draft, target, probes)
        answer = method.answer("?")
        assert method.name == name
        assert (answer.output_tokens, answer.finish_reason) == (200, "length")
        assert [s.text for s in answer.trace[:3]] == list(long[:3])
    assert answer.verifications < len(answer.trace)  # gamma = 2
    assert target.decode(target.sessions[0].tokens).startswith("sys\n?")


def test_build_says_what_is_wrong(settings: Settings):
    """An unknown method and a missing probe are the user's to mend."""
    draft, target = engines()
    with pytest.raises(UserError, match="unknown method 'magic'; known: target, draft, speculative_sampling"):
        decoding.build("magic", settings, draft, target, {})
    with pytest.raises(UserError, match="trained probe: draft; run `semspec run`"):
        decoding.build("semantic", settings, draft, target, {"target": ScriptedProbe(1.0)})


def marked(
    settings: Settings, name: str, marks: list[dict[int, float]], monkeypatch: pytest.MonkeyPatch, **baselines: object
) -> Answer:
    """The answer of a method to whose drafted steps the target gives these marks, each with its probability."""
    left = list(marks)

    def draw(session: FakeSession, n_tokens: int, sampling: object) -> Proposal:
        found = left.pop(0)
        tokens = [session.engine.encode(str(digit))[0] for digit in found]
        return Proposal(tokens[:1], np.array([tokens]), np.array([list(found.values())]))

    monkeypatch.setattr(FakeSession, "draw", draw)
    own = settings.model_copy(update={"baselines": settings.baselines.model_copy(update=baselines)})
    answer = decoding.build(name, own, *engines(), {}).answer("?")
    check(answer)
    assert not left
    return answer


def test_reward_guided_keeps_from_its_reward_on(settings: Settings, monkeypatch: pytest.MonkeyPatch):
    """The mean mark, from 0 to 1: at `baselines.reward` a step is kept, just below it the target writes another."""
    at, below = {9: 0.5, 0: 0.5}, {9: 0.49, 0: 0.51}
    answer = marked(settings, "reward_guided", [at, below, at, below], monkeypatch, reward=0.5)
    assert [s.score for s in answer.trace] == pytest.approx([0.5, 0.49, 0.5, 0.49])
    assert [s.accepted for s in answer.trace] == [True, False, True, False]
    assert [s.text for s in answer.trace] == [DRAFT[0], TARGET[1], DRAFT[2], TARGET[3]]


def test_reward_guided_takes_any_scorer(settings: Settings):
    """It is asked for each drafted step, with what the answer holds so far; the target reads the steps that stayed when
    it writes itself, all of them in one pass and each of them once, and is asked for no mark."""
    script = ("one.\n\n", "two.\n\n", "three.\n\n", "four.\n\n", "five")
    rewards, asked = [0.9, 0.7, 0.69, 1.0, 0.0], []

    def scorer(question: str, steps: Sequence[str], step: str) -> float:
        asked.append((question, list(steps), step))
        return rewards[len(asked) - 1]

    draft, target = engines(draft=script, target=tuple(step.upper() for step in script))
    answer = decoding.RewardGuided(decoding.Setup.of(settings), draft, target, scorer).answer("?")
    written = [*script[:2], "THREE.\n\n", script[3], "FIVE"]
    assert [s.text for s in answer.trace] == written and answer.text == "".join(written)
    assert [s.accepted for s in answer.trace] == [True, True, False, True, False]
    assert [s.score for s in answer.trace] == rewards
    assert asked == [("?", written[:i], script[i]) for i in range(5)]
    (reader,) = target.sessions
    assert [kind for kind, _ in reader.calls] == ["follow", "generate"] * 2
    assert [n for kind, n in reader.calls if kind == "follow"] == [len("".join(script[:2])), len(script[3])]
    assert (answer.verifications, answer.verifier_tokens) == (2, len("".join(script)) - len(script[2]) - len(script[4]))


@pytest.mark.parametrize("reward", [-0.01, 1.01, float("nan")])
def test_a_reward_that_is_none_is_refused(settings: Settings, reward: float):
    method = decoding.RewardGuided(decoding.Setup.of(settings), *engines(), lambda *_: reward)
    with pytest.raises(UserError, match="return a number from 0 to 1"):
        method.answer("?")


def test_a_scorer_may_be_named(settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """`baselines.scorer` names one of a module in the current folder; what is none is said in a line."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    code = (
        "class Fine:\n    length = 5\n    def __call__(self, question, steps, step): return step < 'p'\nmine = Fine()\n"
    )
    (tmp_path / "scorer_of_mine.py").write_text(code)

    def build(scorer: str) -> Method:
        baselines = schema.Baselines(scorer=scorer)
        return decoding.build("reward_guided", settings.model_copy(update={"baselines": baselines}), *engines(), {})

    assert [s.accepted for s in build("scorer_of_mine:mine").answer("?").trace] == [True, False, False, False]
    wrong = {"scorer_of_mine:mine.length": "can't be called", "scorer_of_mine:other": "other", "no_such:a": "no_such"}
    for scorer, says in wrong.items():
        with pytest.raises(UserError, match=rf"baselines\.scorer is '{scorer}'.*{says}"):
            build(scorer)
    with pytest.raises(UserError, match=r"parameter 'baselines\.scorer' is 'no module'"):
        validate({**settings.model_dump(), "baselines": {"scorer": "no module"}})
    del sys.modules["scorer_of_mine"]


def test_lots_are_drawn_by_the_answers_seed(settings: Settings):
    """Repeats of a greedy answer share no p and no q; the same seed gives the same ones."""
    method = decoding.build("semantic_random", settings, *engines(), {})
    one, same, other = ([(s.p, s.q) for s in method.answer("?", seed).trace[:1]] for seed in (1, 1, 2))
    assert one == same and one != other


@pytest.mark.parametrize(("scoring", "kept"), [("greedy", True), ("average", False)])
def test_specreasons_verdict_is_its_marks(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, scoring: str, kept: bool
):
    """A likeliest mark above `baselines.mark` keeps a step that the mean below it rejects; a mean at it keeps."""
    below, at = {8: 0.6, 4: 0.4}, {9: 0.5, 5: 0.5}
    answer = marked(settings, "specreason", [below, at, at, below], monkeypatch, scoring=scoring, mark=7)
    assert [s.accepted for s in answer.trace] == [kept, True, True, kept]


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project folder with (empty) probes, whose engines and probes are scripted."""
    draft, target = engines(target=(*TARGET[:3], "The answer is \\boxed{6}."))
    monkeypatch.setattr("semspec.engine.load", lambda name, *_: {"small": draft, "large": target}[name])
    scripts = {"draft": (1.0,), "target": (YES, YES, YES, NO)}
    monkeypatch.setattr("semspec.probe.Probe.load", lambda folder: ScriptedProbe(*scripts[folder.name]))
    for role, name in (("draft", "small"), ("target", "large")):
        write_json(tmp_path / f"data/models/{role}.json", {"name": name})
        (tmp_path / "data/probes" / role).mkdir(parents=True)
        (tmp_path / "data/probes" / role / "config.json").write_text("{}")
    return tmp_path


def test_a_probe_of_another_model_is_refused(settings: Settings, project: Path):
    """Probes do not carry over: the line names both models."""
    write_json(project / "data/models/target.json", {"name": "huge"})
    with pytest.raises(UserError, match="trained for huge, not large"):
        solve("2 dogs?", settings, project)


def test_a_bench_refuses_the_questions_that_its_probes_were_trained_on(settings: Settings, project: Path):
    """Before any model is loaded, whatever contexts.dataset says by now."""
    mine = project / "mine.jsonl"
    mine.write_text('{"question": "1 + 1?", "answer": "2"}\n')
    write_json(project / "data/probes/target/config.json", {"trained_on": {"domain": str(mine)}})
    asked = settings.bench.model_copy(update={"dataset": str(mine), "methods": ["semantic"]})
    with pytest.raises(UserError, match="tested on what they are trained on"):
        bench(settings.model_copy(update={"bench": asked}), project, project / "out")


def test_a_result_says_where_its_problems_and_probes_are_from(settings: Settings, project: Path):
    """By hashes and names alone: no folder of this machine is in it."""
    mine = project / "mine.jsonl"
    mine.write_text('{"question": "1 + 1?", "answer": "2"}\n')
    for folder, domain in (("data/probes", str(project / "train.jsonl")), ("science", "s1k:science")):
        for role in ("draft", "target"):
            write_json(project / folder / role / "config.json", {"trained_on": {"domain": domain}})
    asked = {"dataset": str(mine), "methods": ["semantic", "semantic_cross_domain", "target"]}
    chosen = settings.model_copy(
        update={
            "bench": settings.bench.model_copy(update=asked),
            "baselines": schema.Baselines(cross_probes="science"),
        }
    )
    one = bench(chosen, project, project / "out")["provenance"]
    assert one["dataset_source"] == f"mine.jsonl sha256:{sha256(mine)}"
    domains = {name: probes["domain"] for name, probes in one["probes"].items()}
    assert domains == {"semantic": "train.jsonl", "semantic_cross_domain": "s1k:science"}
    hashes = [probes["sha256"] for probes in one["probes"].values()]
    assert len(set(hashes)) == 2 and {len(h) for h in hashes} == {64}
    assert str(project) not in json.dumps([one["dataset_source"], one["probes"]])
    (project / "data/probes/draft/probe.safetensors").write_bytes(b"weights")
    two = bench(chosen, project, project / "out")["provenance"]
    assert one["probes"]["semantic"] != two["probes"]["semantic"]
    assert one["probes"]["semantic_cross_domain"] == two["probes"]["semantic_cross_domain"]


def test_other_probes_come_from_their_own_folders(settings: Settings, project: Path, monkeypatch: pytest.MonkeyPatch):
    """The last layer's probes lie beside the project's, another domain's where the setting says, or nowhere."""
    with pytest.raises(UserError, match="last_hidden/draft holds no trained probe"):
        solve("?", settings, project, "semantic_last_hidden")
    with pytest.raises(UserError, match=r"needs baselines\.cross_probes"):
        solve("?", settings, project, "semantic_cross_domain")
    (project / "data/probes").rename(project / "science")
    seen = []
    load = lambda folder: seen.append(folder) or ScriptedProbe(1.0)  # noqa: E731
    monkeypatch.setattr("semspec.probe.Probe.load", load)
    baselines = settings.baselines.model_copy(update={"cross_probes": "science"})
    assert solve("?", settings.model_copy(update={"baselines": baselines}), project, "semantic_cross_domain") == 0
    assert seen == [project / "science/draft", project / "science/target"]


def test_solve_prints_plain_text_without_a_terminal(settings: Settings, project: Path, capsys):
    """Authors, p, q, verdicts, the rejected text, the totals and the boxed answer, and no escape codes."""
    assert solve("?", settings, project, "semantic", as_json=False) == 0
    out = capsys.readouterr().out
    assert "\x1b" not in out
    assert "draft  p 1.00  q 1.00  score 1.00  accepted\none dog.\n" in out
    assert "draft  p 0.00  q 1.00  score 0.00  rejected\nso six\ntarget  instead\nThe answer is \\boxed{6}.\n" in out
    assert "3 of 4 draft steps accepted" in out
    assert "answer: 6\n" in out


def test_solve_prints_one_json_object(settings: Settings, project: Path, capsys):
    """`--json` prints the numbers under the names of results.jsonl, and nothing else."""
    assert solve("?", settings, project, "semantic", as_json=True) == 0
    row = json.loads(capsys.readouterr().out)
    assert (row["answer"], row["method"], row["steps"], row["accepted"]) == ("6", "semantic", 4, 3)
    assert row["output"] == "".join(DRAFT[:3]) + "The answer is \\boxed{6}."
    assert row["trace"][3]["rejected_text"] == "so six"


def test_solve_strikes_a_rejected_draft_through_in_a_terminal():
    """In a terminal the rejected text is struck through, and what a model writes cannot steer it."""
    screen = io.StringIO()
    view = View(Console(file=screen, force_terminal=True, color_system="standard"))
    view.step(TraceStep("target", "new", 3, p=0.1, q=0.9, a=0.11, u=0.5, accepted=False, rejected_text="old \x1b[2J"))
    assert "\x1b[2;9mold" in screen.getvalue()
    assert "\x1b[2J" not in screen.getvalue()


def test_solve_says_what_is_wrong(settings: Settings, tmp_path: Path):
    """No question, no such method, no probes: one line each, before any model is loaded."""
    with pytest.raises(UserError, match="question is empty"):
        solve(" ", settings, tmp_path, "target", as_json=False)
    with pytest.raises(UserError, match="unknown method"):
        solve("?", settings, tmp_path, "magic", as_json=False)
    with pytest.raises(UserError, match="run `semspec run` first"):
        solve("?", settings, tmp_path, "semantic", as_json=False)

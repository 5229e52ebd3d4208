"""Variants: a method beside itself with other parameters, in one bench."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from fakes import FakeEngine, ScriptedProbe
from scripted import DRAFT, TARGET

from semspec import cli, config, schema
from semspec.bench import command, runner
from semspec.errors import UserError
from semspec.problems import Problem, check_apart
from semspec.report import paper, published

REPO = Path(__file__).resolve().parents[2]


def settings(**bench):
    data = config.load(REPO / "tests/defaults").model_dump()
    data["decide"] |= {"rule": "ratio", "threshold": 0.5}
    data["bench"] |= bench
    return config.validate(data)


def test_a_variant_changes_what_it_names_and_nothing_else():
    base = settings(variants=["semantic@gamma=2"])
    method, own = config.variant(base, "semantic@rule=p+threshold=null+gamma=3")
    assert (method, own.decide.rule, own.decide.threshold, own.bench.gamma) == ("semantic", "p", None, 3)
    assert own.text == base.text and own.bench.variants == []
    assert config.variant(base, "target") == ("target", base)


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("semantics@gamma=2", "did you mean 'semantic'"),
        ("semantic@gama=2", "did you mean 'gamma'"),
        ("semantic@gamma", "write it as METHOD@name=value"),
        ("semantic@", "write it as METHOD@name=value"),
        ("semantic@gamma=0", "parameter 'bench.gamma' is 0"),
        ("semantic_cross_domain@cross_probes=b", "a method has no 'cross_probes' of its own"),  # they are loaded once
        ("semantic@max_tokens=9", "a method has no 'max_tokens' of its own"),  # the budget is everybody's
        ("semantic@rule=[", "not valid YAML"),
    ],
)
def test_a_wrong_variant_is_refused_before_any_work(name, says):
    with pytest.raises(UserError, match=says.replace("(", r"\(")):
        settings(variants=[name])


def test_one_bench_runs_a_method_with_two_settings(tmp_path, monkeypatch):
    names = ["target", "semantic", "semantic@gamma=2", "semantic@threshold=0.9"]
    models = FakeEngine("draft", DRAFT), FakeEngine("target", TARGET)
    monkeypatch.setattr(command, "load_models", lambda *_: models)
    probes = {"draft": ScriptedProbe(1.0), "target": ScriptedProbe(0.7)}
    made = command.Methods(names, settings(), probes)
    assert [made[n].gamma for n in names[1:]] == [1, 2, 1]
    rows = runner.run(settings(), made, [Problem("1", "Q?", "6")], tmp_path)
    assert list(rows["methods"]) == names
    kept = {n: rows["methods"][n]["acceptance_rate"] for n in names[1:]}
    assert kept["semantic"] == kept["semantic@gamma=2"] == 1.0 and kept["semantic@threshold=0.9"] == 0.0
    lengths = {n: rows["methods"][n]["acceptance_length"] for n in names[1:3]}
    assert lengths["semantic@gamma=2"] > lengths["semantic"]


def test_a_bench_leaves_its_parameters_beside_its_results(tmp_path, monkeypatch):
    """But for a password; the pipeline's own has the project's, and a project's are never written over."""
    monkeypatch.setattr(command, "load_models", lambda *_: (None, FakeEngine("target", TARGET)))
    (tmp_path / "mine.jsonl").write_text('{"id": "1", "question": "Q?", "answer": "6"}\n')
    chosen = settings(methods=["target"], variants=[], dataset=str(tmp_path / "mine.jsonl"), max_tokens=77)
    for name in ("other", "results/bench"):
        command.bench(chosen, tmp_path, tmp_path / name)
    assert runner.recorded(tmp_path / "other", tmp_path) == chosen
    tracked = chosen.model_copy(update={"tracking": schema.Tracking(uri="https://me:secret@there/x")})
    command.bench(tracked, tmp_path, tmp_path / "tracked")
    found = runner.recorded(tmp_path / "tracked", tmp_path)
    assert found is not None and found.tracking.uri == "https://there/x"
    assert not (tmp_path / "results/bench/params.yaml").exists()
    config.write(tmp_path, chosen)
    assert runner.recorded(tmp_path / "results/bench", tmp_path) == chosen
    config.write(tmp_path, settings())
    assert runner.recorded(tmp_path / "results/bench", tmp_path) is None  # made with other ones
    assert runner.recorded(tmp_path / "nothing", tmp_path) is None
    (tmp_path / "dvc.yaml").touch()
    with pytest.raises(UserError, match="is a project"):
        command.bench(chosen, tmp_path, tmp_path)
    (tmp_path / "dvc.yaml").unlink()
    with pytest.raises(UserError, match="is a project"):
        command.bench(chosen, tmp_path, tmp_path)
    assert config.load(tmp_path) == settings()


def test_a_bench_and_its_parts_exclude_each_other(tmp_path, monkeypatch):
    monkeypatch.setattr(command, "DYING_S", 0.2)
    monkeypatch.setattr(command, "ASKING_S", 0.2)
    whole, one, two = runner.WHOLE, (1, 2), (2, 2)
    for held, asks in ((whole, whole), (whole, one), (one, whole), (one, one)):
        refused = pytest.raises(UserError, match="another bench")
        with command._alone(tmp_path, held), refused, command._alone(tmp_path, asks):
            pass
    with command._alone(tmp_path, one), command._alone(tmp_path, two):
        pass
    with command._alone(tmp_path, whole):
        pass


def test_probes_and_draft_are_those_of_the_method_behind(tmp_path):
    assert command.plain(["semantic@gamma=2", "target"]) == {"semantic", "target"}
    assert list(command._folders(settings(), tmp_path, ["semantic@gamma=2"])) == ["semantic"]


def test_answers_in_other_number_formats_are_not_put_together(tmp_path, monkeypatch):
    """A GPU's, and those of a CPU that has no int8."""
    found = []
    for kind in (("int8", "cpu"), ("bf16", "cuda"), ("fp32", "cpu")):
        monkeypatch.setattr(command.engine, "resolve", lambda *_, kind=kind: kind)
        found.append(command._identity(settings(), tmp_path, ["target"]))
    assert len(set(found)) == 3


def test_the_questions_of_another_projects_probes_are_looked_for_there(tmp_path):
    """A file of theirs may have the name of one here."""
    questions = {"theirs": "What is 1 + 1?", "mine": "What is 2 + 2?"}
    for name, question in questions.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "set.jsonl").write_text(json.dumps({"question": question, "answer": "4"}) + "\n")
    check_apart(str(tmp_path / "theirs/set.jsonl"), str(tmp_path / "mine/set.jsonl"))
    with pytest.raises(UserError, match="would be tested on what they are trained on"):
        check_apart(str(tmp_path / "mine/../theirs/set.jsonl"), str(tmp_path / "theirs/set.jsonl"))


def test_the_command_line_tells_variants_from_methods(monkeypatch):
    seen = {}
    monkeypatch.chdir(REPO / "tests/defaults")
    monkeypatch.setattr(command, "bench", lambda s, *_: seen.update(s.bench.model_dump()) or {"methods": {}})
    assert cli.main(["bench", "--methods", "target,semantic@gamma=2", "--json"]) == 0
    assert seen["methods"] == ["target"] and seen["variants"] == ["semantic@gamma=2"]


def test_the_papers_profile_runs_every_method_of_its_table_4():
    from ruamel.yaml import YAML

    overlay = YAML(typ="safe").load(config.PROFILES / "paper.yaml")
    assert set(paper.METHODS.values()) <= set(overlay["bench"]["methods"])


def test_the_papers_figure_4_takes_each_gamma_from_its_variant():
    methods = {"semantic": {"pass_at_1": 0.5, "tps": 9.0}, "semantic@gamma=3": {"pass_at_1": 0.25, "tps": 7.0}}
    run = paper.Run("results/mine", "a → b", "gsm_symbolic", methods, settings())
    filled = paper.fill(published.FIGURE_4, [run])
    cells = {name: row[-2:] for name, row in filled.blocks[-1].rows}
    assert cells == {"γ = 1": ["0.500", "9.00"], "γ = 2": ["not run"] * 2, "γ = 3": ["0.250", "7.00"]}
    assert json.dumps(cells)

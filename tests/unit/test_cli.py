"""Mistakes on the command line and in params.yaml: one `error:` line, exit code 2, nothing spoiled."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from semspec import cli, config, doctor
from semspec.cli import main
from semspec.errors import UserError

REPO = Path(__file__).resolve().parents[2]


def failure(capsys, *args: str) -> str:
    """The error line of a command that must fail as a user's mistake."""
    try:
        code = main(list(args))
    except SystemExit as e:
        code = e.code
    captured = capsys.readouterr()
    lines = [line for line in captured.err.splitlines() if line.strip()]
    assert code == 2 and len(lines) == 1 and lines[0].startswith("error: "), (code, captured)
    return lines[0]


@pytest.mark.parametrize(
    ("edit", "wanted"),
    [
        (("folds:", "fold:"), "did you mean 'folds'"),
        (("gamma: 1", "gamma: 0"), "bench.gamma"),
        (("split: blank_line", "split: paragraph"), "text.split"),
        (("questions: 16", "questions: many"), "contexts.questions"),
        (("sample:\n  n: 10", "sample:\n  n: 10\n  n: 11"), "not valid YAML"),
        (("seed: 0", "seed: [0"), "not valid YAML"),
        (("models:", "model:"), "did you mean 'models'"),
    ],
)
def test_a_mistake_in_params_is_one_line(here, capsys, edit, wanted):
    """A wrong name, value or syntax is named, with what to do."""
    text = (here / "params.yaml").read_text()
    assert edit[0] in text
    (here / "params.yaml").write_text(text.replace(*edit, 1))
    assert wanted in failure(capsys, "stage", "cluster")


@pytest.mark.parametrize(
    ("args", "wanted"),
    [
        (["stage", "clusters"], "invalid choice"),
        (["bench", "--set", "bench.limits=3"], "did you mean 'limit'"),
        (["bench", "--set", "bench.max-tokens=64"], "unknown parameter 'bench.max-tokens'; did you mean 'max_tokens'?"),
        (["bench", "--set", "foo-bar=1"], "unknown parameter 'foo-bar'; known: profile, seed"),
        (["bench", "--set", "train.layers={draft: [1], target: [1], int: 1}"], "unknown parameter 'train.layers.int'"),
        (
            ["bench", "--set", "decide.threshold=false"],
            "neither true nor false can stand here; null means no threshold",
        ),
        (["bench", "--set", "bench.gamma=true"], "neither true nor false can stand here"),
        (["bench", "--set", "train.hidden_sizes=[8, true]"], "neither true nor false can stand here"),
        (["bench", "--set", "limit"], "section.name=value"),
        (["bench", "--set", "seed.x=3"], "not a section"),
        (["bench", "--methods", "target,magic"], "bench.methods"),
        (["bench", "--methods", "semantic@gamma=2"], "variants only"),
        (["bench", "--dataset", "nope.jsonl", "--methods", "target"], "nope.jsonl"),
        (["bench", "--limit", "0"], "bench.limit"),
        (["models", "pull", "qwen2.5-coder-0.5b-instrukt"], "did you mean"),
        (["solve", " "], "question is empty"),
        (["solve", "\udcff 1+1?"], "no UTF-8 text"),
        (["bench", "--methods", "target,semantic@gamma=2+gamma=3"], "'gamma' is given twice"),
        (["bench", "--methods", "target,target@gamma=2,target@gamma=02"], "are the same"),
        (["solve", "2+2?"], "semspec run"),
        (["report"], "missing"),
        (["stage", "train"], "missing"),
        (["report", "--results", "nowhere"], "holds no results.jsonl"),
        (["plan", "--check", "nowhere"], "holds no results.jsonl"),
        (["tune", "--lambda", "nan"], "argument --lambda: 'nan' is no number"),
        (["tune", "--search", "decide,decide"], "given twice"),
        (["serve", "--method", "magic"], "invalid choice"),
        ([], "required"),
    ],
)
def test_a_mistake_on_the_command_line_is_one_line(here, capsys, args, wanted):
    """Every verb answers a mistake with one line and exit code 2."""
    assert wanted in failure(capsys, *args)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("", "holds no problem"),
        ("\n\n", "holds no problem"),
        ("{not json}\n", "line 1"),
        ('{"id": "1", "question": "q"}\n', "answer"),
    ],
)
def test_a_broken_problems_file_is_one_line(here, capsys, text, wanted):
    """An empty or malformed file of problems is named before any model is loaded."""
    (here / "p.jsonl").write_text(text)
    assert wanted in failure(capsys, "bench", "--dataset", "p.jsonl", "--methods", "target")


def test_outside_a_project_the_line_says_where_to_go(tmp_path, monkeypatch, capsys):
    """Without the project's files every verb says so."""
    monkeypatch.chdir(tmp_path)
    assert "cloned repository" in failure(capsys, "run")
    assert "params.yaml" in failure(capsys, "stage", "train")


def test_a_profile_is_merged_with_comments_kept(here):
    """Only what the profile names changes; comments stay; doing it twice changes nothing."""
    before = (here / "params.yaml").read_text()
    changed = config.apply(here, "laptop")
    after = (here / "params.yaml").read_text()
    assert "contexts.questions" in changed and "profile" in changed
    assert config.load(here).contexts.questions == 64
    assert before.count("#") == after.count("#")
    assert config.apply(here, "laptop") == []
    config.apply(here, "quick")
    assert config.load(here).model_dump() == config.load(REPO / "tests/defaults").model_dump()


def test_a_file_that_names_no_profile_takes_one(here):
    """It then stands for the default, quick."""
    text = (here / "params.yaml").read_text()
    (here / "params.yaml").write_text(text.replace("profile: quick\n", "", 1))
    assert "profile" in config.apply(here, "laptop")
    assert config.load(here).profile == "laptop" and config.load(here).contexts.questions == 64


@pytest.mark.parametrize("then", config.profiles())
def test_a_profile_leaves_nothing_behind(here, then):
    """Whatever was run before, a profile means the same; what the user has changed stays."""
    config.apply(here, then, ["cluster.threshold=0.55"])
    wanted, text = config.load(here), (here / "params.yaml").read_bytes()
    for first in (name for name in config.profiles() if name != then):
        (here / "params.yaml").write_bytes(text)
        config.apply(here, first)
        assert config.load(here).cluster.threshold == 0.55, first
        config.apply(here, then)
        assert config.load(here) == wanted, first


@pytest.mark.parametrize("value", ["[]", "[semantic@gamma=2]", "[semantic@gamma=2, semantic@gamma=3]"])
def test_a_list_is_changed_whatever_its_style(here, value):
    """A list that was written over several lines, with a comment, becomes another; the lines behind it stay."""
    (here / "params.yaml").write_bytes((REPO / "results/overnight/params.yaml").read_bytes())
    assert config.apply(here, None, [f"bench.variants={value}", "bench.max_tokens=384"])
    found = config.load(here).bench
    assert list(found.variants) == config.parse_override(f"x.y={value}")[1] and found.max_tokens == 384
    assert "# the same with parameters" in (here / "params.yaml").read_text()


def test_a_file_is_never_spoiled(here, monkeypatch):
    """What would be written is read again first."""
    before = (here / "params.yaml").read_bytes()
    monkeypatch.setattr(config, "_says", lambda path, data: False)
    with pytest.raises(UserError, match=r"change bench\.limit there by hand"):
        config.apply(here, None, ["bench.limit=7"])
    assert (here / "params.yaml").read_bytes() == before


def test_a_linked_file_stays_a_link_and_keeps_its_mode(here):
    """What it points to is changed."""
    (here / "elsewhere").mkdir()
    real = (here / "params.yaml").rename(here / "elsewhere/mine.yaml")
    real.chmod(0o640)
    (here / "params.yaml").symlink_to("elsewhere/mine.yaml")
    assert config.apply(here, None, ["bench.limit=7"]) == ["bench.limit"]
    assert (here / "params.yaml").is_symlink() and config.load(here).bench.limit == 7
    assert real.stat().st_mode & 0o777 == 0o640 and [p.name for p in real.parent.iterdir()] == ["mine.yaml"]


def test_a_bad_override_leaves_the_file_alone(here):
    """Nothing is written unless the whole result is valid."""
    before = (here / "params.yaml").read_bytes()
    with pytest.raises(UserError, match=r"bench\.limit"):
        config.apply(here, "laptop", ["bench.limit=-1"])
    with pytest.raises(UserError, match=r"unknown profile 'laptob'.*laptop"):
        config.apply(here, "laptob")
    assert (here / "params.yaml").read_bytes() == before


@pytest.mark.parametrize("profile", config.profiles())
def test_every_profile_is_valid(here, profile):
    """A profile that ships applies cleanly and names itself."""
    config.apply(here, profile)
    assert config.load(here).profile == profile


def test_doctor_without_pytorch_still_reports(here, monkeypatch, capsys):
    """What is missing is what it is asked for."""
    monkeypatch.setattr(doctor, "find_spec", lambda name: None)
    assert main(["doctor", "--json"]) == 2
    found = json.loads(capsys.readouterr().out)
    assert not found["machine"]["ok"] and not found["engines"]["ok"] and "torch" in found["machine"]["found"]
    assert found["params"]["ok"]


@pytest.mark.parametrize("there", [True, False])
def test_doctor_asks_for_room_where_models_go_while_they_are_to_come(here, monkeypatch, there):
    """Afterwards the project's disk is looked at, which needs little."""
    monkeypatch.setenv("SEMSPEC_HOME", str(here / "not-yet/home"))
    monkeypatch.setattr("semspec.models.installed", lambda name: there)
    asked: list[Path] = []
    room = SimpleNamespace(free=5e9)
    monkeypatch.setattr(doctor.shutil, "disk_usage", lambda path: asked.append(path) or room)
    ok, says = doctor._disk(here)
    assert ok == there and ("make room for 15 GB" in says) == (not there)
    (here / "models-disk").mkdir()
    monkeypatch.setenv("SEMSPEC_HOME", str(here / "models-disk/home"))
    doctor._disk(here)
    assert asked == [here, here if there else here / "models-disk"]


def test_only_a_reader_of_ours_that_has_gone_is_a_quiet_end(monkeypatch):
    """`| head` is no failure; a broken pipe to another process is, and must not look like a stage that is done."""

    def another_has_gone(args):
        raise BrokenPipeError

    monkeypatch.setattr(cli, "doctor", another_has_gone)
    with pytest.raises(BrokenPipeError):
        main(["doctor"])
    code = "import sys; from semspec.cli import main; sys.exit(main(['models', 'list']))"
    piped = f'{sys.executable} -c "{code}" | true; exit ${{PIPESTATUS[0]}}'
    for _ in range(3):
        assert subprocess.run(["bash", "-c", piped], capture_output=True, check=False).returncode == 0

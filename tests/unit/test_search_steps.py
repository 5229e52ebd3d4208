"""A step of a search as a process: what it is given, and how its mistakes and bugs come back."""

from __future__ import annotations

import contextlib
import io
import sys
import traceback

import pytest

from semspec.commands import StageFailed
from semspec.errors import UserError
from semspec.tuning import __main__ as process
from semspec.tuning import launch


@pytest.fixture
def steps(monkeypatch):
    """The steps that there are; the command of one runs in this process, with the exit code that Python would give."""

    def run_command(command, root, log, live):
        assert command[:3] == [sys.executable, "-m", "semspec.tuning"]
        said = io.StringIO()
        with contextlib.chdir(root), contextlib.redirect_stderr(said):
            try:
                code = process.main(command[3:])
            except Exception:
                traceback.print_exc()
                code = 1
        return code, [line for line in said.getvalue().splitlines() if line.startswith("error: ")]

    there: dict[str, object] = {}
    monkeypatch.setattr(process, "STEPS", there)
    monkeypatch.setattr(process, "quiet", lambda root: None)
    monkeypatch.setattr(launch, "run_command", run_command)
    return there


def raising(error):
    def step(root, name):
        raise error

    return step


def test_a_step_gets_folder_name_and_number(steps, tmp_path):
    given = []
    steps["search"] = lambda *args: given.append(args)
    launch.run_step(tmp_path, "search", "mine", 3)
    assert given == [(tmp_path.resolve(), "mine", 3)]


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (UserError("no trial keeps within the limits"), "^no trial keeps within the limits$"),
        (OSError(28, "No space left on device", "journal.log"), "^journal.log: No space left on device$"),
        (OSError("gone"), "^system: gone$"),
    ],
)
def test_a_mistake_of_the_users_comes_back_in_its_own_words(steps, tmp_path, error, says):
    """So does a full disk, which is no bug of ours."""
    steps["live"] = raising(error)
    with pytest.raises(UserError, match=says):
        launch.run_step(tmp_path, "live", "mine")


@pytest.mark.parametrize("step", ["prepare", "nothing"])
def test_a_crash_says_how_to_run_the_step_alone(steps, tmp_path, step):
    """A step that there is not is one of ours, too."""
    steps["prepare"] = raising(RuntimeError("bug"))
    with pytest.raises(StageFailed, match=rf"^step '{step}' failed \(exit code 1\)$") as caught:
        launch.run_step(tmp_path, step, "mine", 2)
    assert caught.value.alone == f"python -m semspec.tuning {step} mine 2"

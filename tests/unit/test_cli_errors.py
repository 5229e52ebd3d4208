"""What a command of ours can come to, by its exit code: the user's mistake, the system's no, an interruption."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from semspec import cli, config, stages

REPO = Path(__file__).resolve().parents[2]


def test_a_stage_without_parts_is_not_divided(here, monkeypatch, capsys):
    """It does not begin; those that have parts are told which one."""
    ran = []
    for name in ("train", "sample"):
        monkeypatch.setitem(stages.STAGES, name, lambda settings, root, name=name, **more: ran.append((name, more)))
    assert cli.main(["stage", "train", "--part", "1/2"]) == 2
    said = "error: --part divides the stages sample and bench; train is made in one piece\n"
    assert capsys.readouterr().err == said and ran == []
    assert cli.main(["stage", "sample", "--part", "2/3"]) == cli.main(["stage", "train"]) == 0
    assert ran == [("sample", {"part": (2, 3)}), ("train", {})]


def test_parameters_that_change_while_a_stage_runs(here, monkeypatch, capsys):
    """DVC would take the output for one of the new values; another comment is no change."""

    def note(settings, root):
        path = root / "params.yaml"
        path.write_text(path.read_text() + "# a note\n")

    monkeypatch.setitem(stages.STAGES, "train", note)
    assert cli.main(["stage", "train"]) == 0
    monkeypatch.setitem(stages.STAGES, "train", lambda settings, root: config.apply(root, None, ["seed=7"]))
    assert cli.main(["stage", "train"]) == 2
    assert capsys.readouterr().err == "error: params.yaml changed while 'train' ran; run it again\n"


@pytest.mark.parametrize(
    ("error", "code", "says"),
    [
        (OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "results/x.jsonl"), 2, "error: results/x.jsonl: No space"),
        (PermissionError(errno.EACCES, os.strerror(errno.EACCES)), 2, "error: system: Permission denied"),
        (OSError("the disk is gone"), 2, "error: system: the disk is gone"),
        (KeyboardInterrupt(), 130, "interrupted; run the same command again"),
    ],
    ids=["full disk", "without a file", "without a number", "Ctrl-C"],
)
def test_what_is_no_bug_is_one_line(monkeypatch, capsys, error, code, says):
    """A full disk and Ctrl-C end a command without a traceback."""

    def broken(args):
        raise error

    monkeypatch.setattr(cli, "doctor", broken)
    assert cli.main(["doctor"]) == code
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(says)

"""Provenance: complete, harmless, and never in the way."""

import json
import platform
from pathlib import Path

import pytest

from semspec import provenance
from semspec.config import validate

MINIMAL = {"models": {"draft": "a", "target": "b", "encoder": "c"}, "text": {"system": "s"}}


def test_has_what_is_needed_to_explain_a_result():
    """Code, packages, parameters, machine and Python are there, and the whole is plain JSON."""
    got = provenance.collect(validate(MINIMAL), dataset="gsm8k")
    assert set(got) == {
        "code", "packages", "params_sha256", "machine", "python", "platform", "profile", "seed", "dataset"
    }  # fmt: skip
    assert got["packages"]["numpy"] and got["machine"]["cores"] >= 1 and got["dataset"] == "gsm8k"
    json.dumps(got, allow_nan=False)


def test_names_no_host_and_no_path():
    """Neither the host's name nor any folder of this machine appears."""
    text = json.dumps(provenance.collect(validate(MINIMAL)))
    assert str(Path.cwd()) not in text and str(Path.home()) not in text and "/usr/" not in text
    assert len(platform.node()) < 3 or platform.node() not in text


def test_parameters_change_the_hash_but_labels_do_not():
    """A stage parameter changes the hash; the profile's name and the tracking address do not."""
    base = provenance.params_sha256(validate(MINIMAL))
    assert provenance.params_sha256(validate(MINIMAL | {"seed": 1})) != base
    assert provenance.params_sha256(validate(MINIMAL | {"profile": "laptop", "tracking": {"uri": "u"}})) == base


def test_never_raises(monkeypatch):
    """Without git, and with a part that fails, the rest is still there."""
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(provenance, "machine", lambda: 1 / 0)
    got = provenance.collect(validate(MINIMAL))
    assert got["code"] == {"commit": None, "dirty": None} and got["machine"] is None and got["python"]


@pytest.mark.parametrize("name", ["params.yaml", "benchmarks/RESULTS.md", "code.py"])
def test_dirty_means_changed_code(tmp_path, monkeypatch, name):
    """Changed parameters have a hash of their own and don't make the code dirty; a changed source does."""
    import subprocess

    monkeypatch.chdir(tmp_path)
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text("1")
    git = ["git", "-c", "user.name=t", "-c", "user.email=t@t"]
    for args in (["init", "-q"], ["add", "."], ["commit", "-qm", "x"]):
        subprocess.run([*git, *args], check=True)
    (tmp_path / name).write_text("2")
    assert provenance.code()["dirty"] is (name == "code.py")

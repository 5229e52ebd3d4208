"""Files are whole or absent: temporary names, damaged inputs, leftovers of killed processes."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest

from semspec import files
from semspec.errors import UserError


def test_an_error_leaves_the_old_file_and_no_rubbish(tmp_path):
    """A write that fails changes nothing."""
    path = tmp_path / "a.json"
    files.write_json(path, {"x": 1})
    with pytest.raises(TypeError):
        files.write_json(path, {"x": object()})
    assert files.read_json(path) == {"x": 1}
    assert [p.name for p in tmp_path.iterdir()] == ["a.json"]


def test_leftovers_of_a_dead_process_are_removed(tmp_path):
    """The temporary file of a killed process goes with the next write; a living one's and another machine's stay."""
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    here, elsewhere = f".a.{files.HOST}-{os.getppid()}.tmp.json", f".a.other_machine-{dead.pid}.tmp.json"
    for name in (f".a.{files.HOST}-{dead.pid}.tmp.json", here, elsewhere):
        (tmp_path / name).write_text("half")
    files.write_json(tmp_path / "a.json", 1)
    assert sorted(p.name for p in tmp_path.iterdir()) == sorted([here, elsewhere, "a.json"])


@pytest.mark.parametrize("name", ["a.parquet", "a.safetensors", "a.json", "a.jsonl"])
def test_a_damaged_file_is_one_line(tmp_path, name):
    """Half a file is a mistake that the line names, not a traceback."""
    path = tmp_path / name
    files.write_parquet(tmp_path / "a.parquet", pd.DataFrame({"x": range(100)}))
    files.write_safetensors(tmp_path / "a.safetensors", {"x": np.zeros(100)})
    files.write_json(tmp_path / "a.json", list(range(100)))
    files.write_jsonl(tmp_path / "a.jsonl", [{"x": 1}])
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    read = getattr(files, f"read_{path.suffix[1:]}")
    with pytest.raises(UserError, match=name):
        read(path)


def test_equal_tables_have_equal_bytes(tmp_path):
    """Parquet, JSON and safetensors carry no time and no place."""
    for name in ("a", "b"):
        files.write_parquet(tmp_path / f"{name}.parquet", pd.DataFrame({"x": [1.5, 2.5], "y": ["p", "q"]}))
        files.write_safetensors(tmp_path / f"{name}.safetensors", {"x": np.ones((2, 3))})
    for kind in ("parquet", "safetensors"):
        assert files.sha256(tmp_path / f"a.{kind}") == files.sha256(tmp_path / f"b.{kind}")


def test_rows_in_another_encoding_are_refused(tmp_path):
    (tmp_path / "rows.jsonl").write_bytes('{"question": "caf\u00e9"}'.encode("latin-1"))
    with pytest.raises(UserError, match="no UTF-8 text"):
        files.read_jsonl(tmp_path / "rows.jsonl")


def test_a_line_that_is_no_object_is_named(tmp_path):
    (tmp_path / "rows.jsonl").write_text('{"a": 1}\n[2]\n')
    with pytest.raises(UserError, match="line 2 is not an object"):
        files.read_jsonl(tmp_path / "rows.jsonl")


def test_json_that_is_no_object_is_refused(tmp_path):
    (tmp_path / "config.json").write_text("[]")
    with pytest.raises(UserError, match="no JSON object"):
        files.read_json(tmp_path / "config.json")


def test_a_full_disk_is_the_systems_error_in_every_format(tmp_path, monkeypatch):
    """safetensors says it in words alone; the command line tells an OSError in one line."""
    from safetensors import SafetensorError

    def full(*args, **options):
        raise SafetensorError("Error while serializing: I/O error: No space left on device (os error 28)")

    class Model:
        save_pretrained = full

    monkeypatch.setattr("safetensors.numpy.save_file", full)
    with pytest.raises(OSError, match="No space left") as told:
        files.write_safetensors(tmp_path / "a.safetensors", {"x": np.zeros(1)})
    assert told.value.errno == 28 and told.value.filename.endswith("a.safetensors") and not list(tmp_path.iterdir())
    with pytest.raises(OSError, match="No space left"):
        files.save_model(Model(), Model(), tmp_path)

"""Loading problems: splits that never overlap, files as users write them, and one-line errors."""

import json
import math
import subprocess
import sys
import time
from pathlib import Path

import pytest

from semspec.errors import UserError
from semspec.problems import Problem, dataset_id, load, sets

SHARED = Path(__file__).parents[3] / "shared" / "data"
GOOD = {"id": "a", "question": "1+1?", "answer": "2"}


def write(folder, *rows, name="p.jsonl"):
    path = folder / name
    path.write_text("\n".join(r if isinstance(r, str) else json.dumps(r) for r in rows), encoding="utf-8")
    return str(path)


def test_generated_splits_never_overlap():
    """No generated question is in two splits, nor twice in one, for equal and for different seeds."""
    parts = [[p.question for p in load("gsm_symbolic", s, 150, seed)] for s in sets.SPLITS for seed in (0, 1)]
    assert all(len(set(part)) == 150 for part in parts)
    train, validation, test = (set(parts[i]) | set(parts[i + 1]) for i in (0, 2, 4))
    assert not train & validation and not train & test and not validation & test
    assert set(parts[4]) != set(parts[5])


def test_split_goes_by_the_question(monkeypatch):
    """Were one question drawn in every split, only one split would keep it."""
    import reasoning_gym

    row = {"question": "How many?", "answer": "3"}
    monkeypatch.setattr(reasoning_gym, "create_dataset", lambda *_, size, seed: [row] * size)
    kept = 0
    for split in sets.SPLITS:
        try:
            kept += len(load("gsm_symbolic", split, 1, 0))
        except UserError as e:
            assert "ask for fewer" in str(e)
    assert kept == 1


def test_generated_set_is_deterministic():
    """A seed gives the same problems, in another process too; a smaller limit gives the first of them."""
    few, many = load("gsm_symbolic", "test", 5, 3), load("gsm_symbolic", "test", 40, 3)
    assert many[:5] == few
    assert [p.id for p in few] == [f"gsm_symbolic/test/3/{i}" for i in range(5)]
    assert all(math.isfinite(float(p.answer)) for p in many)
    code = "from semspec.problems import *; print(dataset_id(load('gsm_symbolic', 'test', 40, 3)))"
    other = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True)
    assert other.stdout.split()[-1] == dataset_id(many)


def test_loading_many_is_fast():
    """A thousand generated problems take seconds at most."""
    load("gsm_symbolic", "train", 1, 0)
    start = time.perf_counter()
    assert len(load("gsm_symbolic", "train", 1000, 0)) == 1000
    assert time.perf_counter() - start < 10


def test_dataset_id():
    """The id follows content and order."""
    a, b = Problem("a", "1?", "1"), Problem("b", "ü?", "2")
    assert dataset_id([a, b]) == dataset_id([a, b])
    assert len({dataset_id(x) for x in ([a, b], [b, a], [a], [Problem("a", "1?", "2"), b])}) == 4


def test_file_as_it_is(tmp_path):
    """A file is used in its order whatever the split; number answers, BOM, CRLF and blank lines are fine."""
    rows = ['\ufeff{"question": "one?", "answer": 1}\r', "", '{"id": 7, "question": "two?", "answer": 2.5}\r']
    path = write(tmp_path, *rows, {"id": "z", "question": "three\u2028?", "answer": " x ", "more": [1]})
    problems = load(path, "train", 99, 5)
    assert [(p.id, p.answer) for p in problems] == [("p.jsonl/1", "1"), ("7", "2.5"), ("z", "x")]
    assert problems[2].question == "three\u2028?"
    assert load(path, "test", 2, 0) == problems[:2]


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([GOOD, "{oops"], "line 2 is not valid JSON"),
        (["[1]"], "line 1 is not an object"),
        (["[" * 100_000], "line 1 is not valid JSON"),
        ([{"answer": "2"}], "line 1 has no 'question'"),
        ([GOOD, {"id": "b", "question": "x?"}], "line 2 has no 'answer'"),
        ([{"question": "x?", "answer": None}], "line 1 has no 'answer'"),
        ([{"question": "  ", "answer": "2"}], "line 1: the question is empty"),
        ([{"question": 5, "answer": "2"}], "line 1: the question is empty or not text"),
        ([{"question": "x?", "answer": " "}], "line 1: the answer is empty"),
        ([{"question": "x?", "answer": [2]}], "line 1: the answer is neither"),
        ([{"question": "x?", "answer": True}], "line 1: the answer is neither"),
        (['{"question": "x?", "answer": NaN}'], "line 1: the answer is neither"),
        ([{"question": "x?", "answer": "2", "id": ""}], "line 1: the id is empty"),
        ([GOOD, {**GOOD, "question": "y?"}], "line 2: id 'a' is that of line 1"),
        ([{"question": "\ud800", "answer": "2"}], "line 1 holds half of a surrogate pair"),
        ([""], "holds no problem"),
        (["\n\n"], "holds no problem"),
    ],
)
def test_file_errors(tmp_path, rows, message):
    """Every mistake in a file is one line that names file and line."""
    path = write(tmp_path, *rows)
    with pytest.raises(UserError) as error:
        load(path, "test", 1, 0)
    assert message in str(error.value)
    assert str(error.value).startswith(path)
    assert "\n" not in str(error.value)


def test_unreadable_files(tmp_path):
    """Missing files, folders and bytes that are no text are the user's mistakes too."""
    with pytest.raises(UserError, match="does not exist"):
        load(str(tmp_path / "no.jsonl"), "test", 1, 0)
    (tmp_path / "d.jsonl").mkdir()
    with pytest.raises(UserError, match="cannot be read"):
        load(str(tmp_path / "d.jsonl"), "test", 1, 0)
    (tmp_path / "b.jsonl").write_bytes(json.dumps(GOOD).encode() + b"\n\xff\xfe")
    with pytest.raises(UserError, match="line 2 is not UTF-8"):
        load(str(tmp_path / "b.jsonl"), "test", 1, 0)


def test_huge_line(tmp_path):
    """A line of 10 MB is read like any other."""
    path = write(tmp_path, {"question": "x" * 10_000_000, "answer": "2"})
    start = time.perf_counter()
    assert len(load(path, "test", 1, 0)[0].question) == 10_000_000
    assert time.perf_counter() - start < 5


@pytest.mark.parametrize(
    ("name", "hint"),
    [("gsm8", "did you mean 'gsm8k'"), ("MATH500", "did you mean 'math500'"), ("data.csv", "ends in .jsonl")],
)
def test_unknown_dataset(name, hint):
    """A name that isn't known gets the nearest one, or the choice."""
    with pytest.raises(UserError, match=hint):
        load(name, "test", 1, 0)


def test_wrong_arguments():
    """Splits and limits are checked."""
    with pytest.raises(UserError, match="train, validation or test"):
        load("gsm_symbolic", "dev", 1, 0)  # type: ignore[arg-type]
    with pytest.raises(UserError, match="at least 1"):
        load("gsm_symbolic", "test", 0, 0)


def test_math500_has_only_test(tmp_path):
    """Training on MATH-500 is refused with what to use instead."""
    with pytest.raises(UserError, match="use gsm8k, gsm_symbolic"):
        load("math500", "train", 1, 0, tmp_path)


@pytest.mark.parametrize("dataset", ["gsm8k", "math500"])
def test_hub_out_of_reach(monkeypatch, dataset):
    """Without the hub, one line says how to go on with a file or a folder."""
    import huggingface_hub as hub

    def refuse(*_, **__):
        raise OSError("no route\nto host")

    monkeypatch.setattr(hub, "try_to_load_from_cache", lambda *_, **__: None)
    monkeypatch.setattr(hub, "get_session", refuse)
    with pytest.raises(UserError) as error:
        load(dataset, "test", 1, 0)
    assert "FILE.jsonl" in str(error.value) and "--data-dir DIR" in str(error.value)
    assert "\n" not in str(error.value)


def test_hub_formats(monkeypatch, tmp_path):
    """The hub's own files become problems: GSM8K's gold answer follows ####, without thousands commas."""
    import pandas as pd

    rows = [{"question": f"Q{i}?", "answer": f"It is <<1=1>>1.\n#### {i},000"} for i in range(40)]
    pd.DataFrame(rows).to_parquet(tmp_path / "g.parquet")
    monkeypatch.setattr(sets, "_hub_file", lambda *_: tmp_path / "g.parquet")
    assert load("gsm8k", "test", 2, 0)[1] == Problem("gsm8k/test/1", "Q1?", "1000")
    train, validation = load("gsm8k", "train", 99, 0), load("gsm8k", "validation", 99, 0)
    assert len(train) + len(validation) == 40
    assert not {p.question for p in train} & {p.question for p in validation}

    row = {"unique_id": "test/a/1.json", "problem": "Q?", "answer": r"\frac{1}{2}"}
    (tmp_path / "m.jsonl").write_text(json.dumps(row) + "\n", encoding="utf-8")
    monkeypatch.setattr(sets, "_hub_file", lambda *_: tmp_path / "m.jsonl")
    assert load("math500", "test", 9, 0) == [Problem("math500/test/a/1.json", "Q?", r"\frac{1}{2}")]


@pytest.mark.skipif(not SHARED.exists(), reason="no shared data here")
def test_data_dir():
    """A folder of files stands in for the hub; GSM8K's splits share no question."""
    parts = {s: load("gsm8k", s, 10_000, 0, SHARED) for s in sets.SPLITS}
    questions = {s: {p.question for p in part} for s, part in parts.items()}
    assert len(parts["train"]) + len(parts["validation"]) == 7473
    assert 600 < len(parts["validation"]) < 900
    assert not questions["train"] & questions["validation"] and not questions["train"] & questions["test"]
    assert len(load("math500", "test", 10_000, 0, SHARED)) == 500

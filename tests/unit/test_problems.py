"""Loading problems: splits that never overlap, files as users write them, and one-line errors."""

import json
import math
import os
import subprocess
import sys
import time
from importlib import metadata
from pathlib import Path

import pytest

from semspec import config, preflight
from semspec.errors import UserError
from semspec.files import sha256
from semspec.problems import Problem, dataset_id, load, sets
from semspec.problems.choice import chosen, shuffled

SHARED = Path(os.environ.get("SEMSPEC_SHARED_DATA") or Path(__file__).resolve().parents[3] / "shared" / "data")
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
    start = time.process_time()
    assert len(load("gsm_symbolic", "train", 1000, 0)) == 1000
    assert time.process_time() - start < 10


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
    ("answer", "gold"),
    [
        ("9 * 2 = <<9*2=18>>18.\n#### 18", "18"),
        ("#### 1\n#### 1,234,567 ", "1234567"),
        ("So\n#### (1, 2)", "(1, 2)"),
        ("1,234", "1,234"),
        ("# 5", "# 5"),
    ],
)
def test_answer_after_its_rationale(tmp_path, answer, gold):
    """GSM8K's own file, whose answers end in "#### 18", needs no rewriting; other answers stay as they are."""
    path = write(tmp_path, {"question": "How many?", "answer": answer})
    assert load(path, "test", 1, 0) == [Problem("p.jsonl/1", "How many?", gold)]


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
        ([{"question": "x?", "answer": "1 + 1 = 2\n#### "}], "line 1: the answer is empty"),
        ([{"question": "x?", "answer": [2]}], "line 1: the answer is neither"),
        ([{"question": "x?", "answer": True}], "line 1: the answer is neither"),
        (['{"question": "x?", "answer": NaN}'], "line 1: the answer is neither"),
        ([{"question": "x?", "answer": "2", "id": ""}], "line 1: the id is empty"),
        ([GOOD, {**GOOD, "question": "y?"}], "line 2: id 'a' is that of line 1"),
        ([{"question": "\ud800", "answer": "2"}], "line 1 holds half of a surrogate pair"),
        ([""], "holds no problem"),
        (["\n\n"], "holds no problem"),
        ([{**GOOD, "choices": {"A": "2"}}], "line 1: choices are 2 to 10 options"),
        ([{**GOOD, "choices": "AB"}], "line 1: choices are 2 to 10 options"),
        ([{**GOOD, "choices": ["2", 3]}], "line 1: an option is empty or not text"),
        ([{**GOOD, "choices": ["1", "3"]}], "line 1: the answer '2' is none of the choices"),
        ([{**GOOD, "choices": ["2", "2"]}], "line 1: the answer '2' is none of the choices"),
        ([{**GOOD, "choices": ["2", "\ud800"]}], "line 1 holds half of a surrogate pair"),
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
    start = time.process_time()
    assert len(load(path, "test", 1, 0)[0].question) == 10_000_000
    assert time.process_time() - start < 5


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


@pytest.mark.parametrize("dataset", sets.TEST_ONLY)
def test_sets_with_test_questions_only(tmp_path, dataset):
    """Training on a benchmark's test questions is refused with what to use instead; s1K is for training alone."""
    with pytest.raises(UserError, match=f"{dataset} has only test questions; for train use gsm8k, gsm_symbolic"):
        load(dataset, "train", 1, 0, tmp_path)
    with pytest.raises(UserError, match="s1k:math has only training questions"):
        load("s1k:math", "test", 1, 0, tmp_path)


CHOICE = {"id": "c", "question": "Which is a metal?", "choices": {"A": "wood", "B": "iron", "C": "glass", "D": "silk"}}


def test_choices_are_shown_in_an_order_of_their_own(tmp_path):
    """Options are shuffled by the seed and the id; the gold letter follows, and the order is kept."""
    path = write(tmp_path, *({**CHOICE, "id": str(i), "answer": "B"} for i in range(40)))
    problems = load(path, "test", 40, 3)
    assert problems[:5] == load(path, "test", 5, 3) and dataset_id(problems) != dataset_id(load(path, "test", 40, 4))
    assert {p.answer for p in problems} == set("ABCD") and len({p.order for p in problems}) > 10
    for p in problems:
        shown = dict(zip("ABCD", p.choices, strict=True))
        assert p.kind == "choice" and shown[p.answer] == "iron" and p.order["ABCD".index(p.answer)] == "B"
        assert [CHOICE["choices"][letter] for letter in p.order] == list(p.choices)
        options = "\n".join(f"{letter}) {text}" for letter, text in shown.items())
        assert p.question == f"Which is a metal?\n\n{options}\n\nAnswer with the letter of the right option."


def test_choices_as_files_have_them(tmp_path):
    """Keys of any name, lists, the option's text as the answer; options that name each other keep their order."""
    rows = [
        {"question": "a?", "choices": {"1": "x", "2": "y"}, "answer": 2},
        {"question": "b?", "choices": ["x", "y"], "answer": "B"},
        {"question": "c?", "choices": ["x ", "y"], "answer": "y"},
        {"question": "d?", "choices": ["x", "y", "z", "All of the above"], "answer": "D"},
        {"question": "e?", "choices": ["x", "y", "Both A and B"], "answer": "C"},
        {"question": "f?", "choices": None, "answer": "4"},
    ]
    problems = load(write(tmp_path, *rows), "test", 9, 0)
    gold = [p.choices["ABCD".index(p.answer)] if p.choices else p.answer for p in problems]
    assert gold == ["y", "y", "y", "All of the above", "Both A and B", "4"]
    assert [p.order for p in problems[3:]] == ["ABCD", "ABC", ""] and problems[5].kind == "math"


@pytest.mark.parametrize(
    ("option", "refers"),
    [
        ("All of the above", True),
        ("None of these.", True),
        ("Both A and B", True),
        ("A and C", True),
        ("(A) or (C) only", True),
        ("Only A, B, and C", True),
        ("neither B nor C is right", True),
        ("Genes A and B show redundancy", False),
        ("Particles a and b annihilate", False),
        ("a and b", False),
        ("product of these reactions", False),
        ("coasts of these continents", False),
        ("the other of the above pair", False),
    ],
)
def test_options_that_name_others_stay(option, refers):
    """Only an option that speaks of other options keeps the source's order, and never where that order is no order."""
    choices = [option, "x", "y", "z"]
    orders = {shuffled(choices, seed, "p") for seed in range(30)}
    assert orders == {"ABCD"} if refers else len(orders) > 5
    assert {shuffled(choices, seed, "p", ordered=False).index("A") for seed in range(30)} == {0, 1, 2, 3}


def test_the_id_of_a_set_without_choices_stays():
    """Fields that only multiple choice has leave the ids of recorded runs as they were."""
    assert dataset_id([Problem("a", "1?", "1")])[:12] == "87b9363d4bf4"


@pytest.mark.parametrize("dataset", ["gsm8k", "s1k", *sets.TEST_ONLY])
def test_hub_out_of_reach(monkeypatch, dataset):
    """Without the hub, one line says how to go on with a file or a folder."""
    import huggingface_hub as hub

    def refuse(*_, **__):
        raise OSError("no route\nto host")

    monkeypatch.setattr(hub, "try_to_load_from_cache", lambda *_, **__: None)
    monkeypatch.setattr(hub, "get_session", refuse)
    with pytest.raises(UserError) as error:
        load(dataset, "train" if dataset == "s1k" else "test", 1, 0)
    assert "FILE.jsonl" in str(error.value) and "--data-dir DIR" in str(error.value)
    assert "\n" not in str(error.value)


def test_gated_set(monkeypatch):
    """A set whose terms must be accepted first says where, and how to log in."""
    import huggingface_hub as hub
    from httpx import Request, Response
    from huggingface_hub.errors import GatedRepoError

    response = Response(401, request=Request("GET", "https://huggingface.co"))

    def refuse(*_, **__):
        raise GatedRepoError("Access is restricted\nto people", response=response)

    monkeypatch.setattr(hub, "try_to_load_from_cache", refuse)
    with pytest.raises(UserError) as error:
        load("gpqa_diamond", "test", 1, 0)
    assert "accept its terms at https://huggingface.co/datasets/Idavidrein/gpqa" in str(error.value)
    assert "hf auth login" in str(error.value) and "\n" not in str(error.value)


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


def test_hub_formats_of_the_contests(monkeypatch, tmp_path):
    """AIME's gold is in a box, AMC's may be a float; GPQA's columns become shuffled options, all of them text."""
    import pandas as pd

    def serve(rows, name):
        table = pd.DataFrame(rows)
        table.to_csv(tmp_path / name, index=False) if name.endswith("csv") else table.to_parquet(tmp_path / name)
        monkeypatch.setattr(sets, "_hub_file", lambda *_: tmp_path / name)

    serve([{"id": 60, "problem": "Q?", "solution": r"\boxed{025}", "url": "u"}], "aime.parquet")
    assert load("aime24", "test", 9, 0) == [Problem("aime24/60", "Q?", "025")]
    serve([{"id": 0, "question": "Q?", "answer": 27.0, "url": "u"}], "amc.parquet")
    assert load("amc23", "test", 9, 0) == [Problem("amc23/0", "Q?", "27")]
    wrong = {f"Incorrect Answer {i}": str(i) for i in (1, 2, 3)}
    serve([{"Record ID": "rec1", "Question": "Q?\n", "Correct Answer": "None\n", **wrong}] * 2, "gpqa.csv")
    (problem,) = load("gpqa_diamond", "test", 1, 5)
    assert (problem.id, problem.kind, problem.domain) == ("gpqa_diamond/rec1", "choice", "science")
    assert problem.choices["ABCD".index(problem.answer)] == "None" and sorted(problem.choices) == [
        "1",
        "2",
        "3",
        "None",
    ]
    wrong["Incorrect Answer 3"] = "All of the above"
    serve([{"Record ID": str(i), "Question": "Q?", "Correct Answer": "0", **wrong} for i in range(40)], "gpqa.csv")
    assert {p.answer for p in load("gpqa_diamond", "test", 40, 5)} == set("ABCD")  # the source has the right one first


def test_s1k_from_the_hub(monkeypatch, tmp_path):
    """Ids name the commit; questions without a short answer and those of MATH-500 are left out; domains are kept."""
    import pandas as pd

    twin = "Which?"
    monkeypatch.setattr(sets, "S1K_IN_MATH500", {sets._letters_hash(twin)})
    kinds = ["math", "science", "crossword"]
    rows = [{"question": f"Q{i}?", "solution": str(i), "cot_type": kinds[i % 3]} for i in range(60)]
    rows += [{"question": "P?", "solution": "Long. " * 40, "cot_type": "math"}]
    rows += [{"question": "B?", "solution": "So\n" + r"\boxed{1} or \boxed{\frac{1}{2}}.", "cot_type": "math"}]
    rows += [{"question": twin, "solution": "1", "cot_type": "math"}]
    folder = tmp_path / "snapshots" / "0123456789abcdef" / "data"
    folder.mkdir(parents=True)
    pd.DataFrame(rows).to_parquet(folder / "t.parquet")
    monkeypatch.setattr(sets, "_hub_file", lambda *_: folder / "t.parquet")
    parts = [{p.id: p for p in load("s1k", split, 99, 0)} for split in ("train", "validation")]
    every = parts[0] | parts[1]
    assert len(every) == len(parts[0]) + len(parts[1]) == 61 and parts[1]
    assert every["s1k@0123456789ab/61"].answer == r"\frac{1}{2}"
    assert every["s1k@0123456789ab/1"].domain == "science" and every["s1k@0123456789ab/2"].domain == "other"
    assert {p.domain for p in load("s1k:math", "train", 99, 0)} == {"math"}
    assert 10 < len(load("s1k:science", "train", 99, 0)) <= 20


def test_s1ks_chains(monkeypatch, tmp_path):
    """By the ids of the problems, from the hub's file and from a folder's, where a row has one."""
    import pandas as pd

    rows = [{"question": f"Q{i}?", "solution": str(i), "cot_type": "math", sets.S1K_CHAINS[1]: None} for i in range(9)]
    rows[3] |= {sets.S1K_CHAINS[0]: "First.\n\nThen 3.", sets.S1K_CHAINS[1]: "Other."}
    rows[4] |= {sets.S1K_CHAINS[1]: "Other."}
    folder = tmp_path / "snapshots" / "0123456789abcdef" / "data"
    folder.mkdir(parents=True)
    pd.DataFrame(rows).to_parquet(folder / "t.parquet")
    monkeypatch.setattr(sets, "_hub_file", lambda *_: folder / "t.parquet")
    assert sets.s1k_chains() == {"s1k@0123456789ab/3": "First.\n\nThen 3.", "s1k@0123456789ab/4": "Other."}
    (tmp_path / "s1k").mkdir()
    chains = [{"trace": "So.\n\n4"}, {"trace": None}, {}]
    write(tmp_path / "s1k", *({**GOOD, "id": str(i), **c} for i, c in enumerate(chains)), name="s1k_questions.jsonl")
    assert sets.s1k_chains(tmp_path) == {"0": "So.\n\n4"}


def test_where_problems_are_from(monkeypatch, tmp_path):
    """A hub's repository and revision, a generator and its version, a file's name and hash."""
    monkeypatch.setattr(sets, "_hub_file", lambda *_: tmp_path / "snapshots/0123abcd/data/train.parquet")
    assert sets.source("math500", "test") == "HuggingFaceH4/MATH-500@6e4ed1a2a79af7d8630a6b768ec859cb5af4d3be"
    assert sets.source("gsm8k", "train").startswith("openai/gsm8k@")
    assert sets.source("s1k:math", "train") == "simplescaling/s1K-1.1@0123abcd"
    for name, package in (("gsm_symbolic", "reasoning-gym"), ("synthetic", "semspec")):
        assert sets.source(name, "test", tmp_path) == f"{package} {metadata.version(package)}"
    for folder, name in (("gsm8k", "train.jsonl"), ("math500", "math500.jsonl"), ("s1k", "s1k_questions.jsonl")):
        (tmp_path / folder).mkdir()
        path = write(tmp_path / folder, {**GOOD, "id": folder}, name=name)
        found = f"{name} sha256:{sha256(path)}"
        split = "test" if folder == "math500" else "validation"
        assert sets.source(folder, split, tmp_path) == sets.source(path, "test") == found


def test_a_folder_without_the_set_is_known_before_any_work(tmp_path):
    """As is a set without such a split; a generated one needs no folder."""
    settings = config.load(Path(__file__).resolve().parents[2])

    def check(dataset):
        chosen = settings.contexts.model_copy(update={"dataset": dataset, "data_dir": str(tmp_path)})
        preflight.check(settings.model_copy(update={"contexts": chosen}))

    with pytest.raises(UserError, match=r"s1k/s1k_questions\.jsonl does not exist"):
        check("s1k:math")
    (tmp_path / "s1k").mkdir()
    write(tmp_path / "s1k", GOOD, {**GOOD, "id": "b", "answer": None}, name="s1k_questions.jsonl")
    check("s1k:math")
    check("gsm_symbolic")
    write(tmp_path / "s1k", GOOD, "{oops", name="s1k_questions.jsonl")
    with pytest.raises(UserError, match="line 2 is not valid JSON"):
        check("s1k")
    with pytest.raises(UserError, match="only test questions"):
        check("math500")


@pytest.mark.skipif(not SHARED.exists(), reason="no data here; SEMSPEC_SHARED_DATA names their folder")
def test_data_dir():
    """A folder of files stands in for the hub; GSM8K's splits share no question."""
    parts = {s: load("gsm8k", s, 10_000, 0, SHARED) for s in sets.SPLITS}
    questions = {s: {p.question for p in part} for s, part in parts.items()}
    assert len(parts["train"]) + len(parts["validation"]) == 7473
    assert 600 < len(parts["validation"]) < 900
    assert not questions["train"] & questions["validation"] and not questions["train"] & questions["test"]
    assert len(load("math500", "test", 10_000, 0, SHARED)) == 500
    assert [len(load(name, "test", 99, 0, SHARED)) for name in ("aime24", "amc23")] == [30, 40]
    math500 = {sets._letters_hash(p.question) for p in load("math500", "test", 999, 0, SHARED)}
    s1k = [p for split in ("train", "validation") for p in load("s1k", split, 999, 0, SHARED)]
    assert len(s1k) == 683 and not {sets._letters_hash(p.question) for p in s1k} & math500
    science = load("s1k:science", "train", 999, 0, SHARED)
    assert science and {p.domain for p in science} == {"science"} and set(science) < set(s1k)


def test_gpqa_from_a_folder(tmp_path):
    """gpqa_diamond.jsonl in a folder is multiple choice about science."""
    (tmp_path / "gpqa_diamond").mkdir()
    write(tmp_path / "gpqa_diamond", {**CHOICE, "answer": "B"}, name="gpqa_diamond.jsonl")
    (problem,) = load("gpqa_diamond", "test", 9, 0, tmp_path)
    assert problem.domain == "science" and problem.choices["ABCD".index(problem.answer)] == "iron"
    options = ["iron", "tin", "zinc", "none of the above"]
    rows = [{"id": i, "question": "Q?", "answer": "A", "choices": options} for i in range(40)]
    write(tmp_path / "gpqa_diamond", *rows, name="gpqa_diamond.jsonl")
    assert {p.answer for p in load("gpqa_diamond", "test", 40, 0, tmp_path)} == set("ABCD")


@pytest.mark.skipif(not SHARED.exists(), reason="no data here; SEMSPEC_SHARED_DATA names their folder")
def test_real_choices_are_read_from_real_answers():
    """The letter that each of ARC's 1,172 written rationales ends in is found; shuffled golds have no favourite."""
    path = SHARED / "arc_challenge" / "test.jsonl"
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    assert all(chosen(r["trace"], list(r["choices"].values())) == r["trace_answer"] for r in rows)
    problems = load(str(path), "test", 9999, 0)
    assert len(problems) == 1172 and {p.kind for p in problems} == {"choice"}
    assert all(p.choices["ABCDE".index(p.answer)] == r["answer_text"] for p, r in zip(problems, rows, strict=True))
    assert min(sum(p.answer == letter for p in problems) for letter in "ABCD") > 250

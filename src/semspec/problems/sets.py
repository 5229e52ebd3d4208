"""Benchmark problems: generated, from the hub, or from a file of the user's, in one form.

Whatever the source, the same arguments give the same problems in the same order, and train, validation and
test never share a question: in the generated sets and in GSM8K's training file, a question's own text decides
which split it belongs to. Knows nothing of prompts, models or grading.
"""

from __future__ import annotations

import difflib
import hashlib
import json
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from random import Random
from typing import Any, Literal

from semspec.errors import UserError
from semspec.problems import language

Split = Literal["train", "validation", "test"]
SPLITS = ("train", "validation", "test")
DATASETS = ("gsm_symbolic", "gsm8k", "math500", "synthetic")
VALIDATION_SHARE = 0.1  # of GSM8K's training file
GSM8K = ("openai/gsm8k", "740312add88f781978c0658806c59bc2815b9866")
MATH500 = ("HuggingFaceH4/MATH-500", "6e4ed1a2a79af7d8630a6b768ec859cb5af4d3be")


@dataclass(frozen=True)
class Problem:
    """A question and its gold answer. `kind` names how it is graded, `domain` what it is about."""

    id: str
    question: str
    answer: str
    domain: str = "math"
    kind: str = "math"


def load(dataset: str, split: Split, limit: int, seed: int = 0, data_dir: Path | str | None = None) -> list[Problem]:
    """The first `limit` problems of a split; fewer when the set has no more.

    dataset: `gsm_symbolic`, `synthetic` (see `semspec.world`), `gsm8k`, `math500`, or the path of a `.jsonl` file, used
    as it is whatever the split. seed: only of the generated sets; the others keep their published order. data_dir: a
    folder that holds `gsm8k/{train,test}.jsonl` and `math500/math500.jsonl`, read instead of the hub.
    Raises `UserError` when the name is unknown or the problems cannot be had.
    """
    if split not in SPLITS:
        raise UserError(f"unknown split '{split}'; use train, validation or test")
    if limit < 1:
        raise UserError(f"the number of problems is {limit}; ask for at least 1")
    if dataset.endswith(".jsonl"):
        return read_problems(dataset)[:limit]
    if dataset == "gsm_symbolic":
        return _gsm_symbolic(split, limit, seed)
    if dataset == "synthetic":
        return _synthetic(split, limit, seed)
    folder = Path(data_dir) if data_dir is not None else None
    if dataset == "gsm8k":
        return _gsm8k(split, limit, folder)
    if dataset == "math500":
        return _math500(split, limit, folder)
    close = difflib.get_close_matches(dataset.lower(), DATASETS, n=1)
    hint = f"did you mean '{close[0]}'?" if close else f"use {', '.join(DATASETS)} or a file that ends in .jsonl"
    raise UserError(f"unknown dataset '{dataset}'; {hint}")


def dataset_id(problems: Sequence[Problem]) -> str:
    """SHA-256 (hex) of the problems, order included: equal ids mean the same questions and gold answers."""
    text = json.dumps([asdict(p) for p in problems], sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode("ascii")).hexdigest()


def _place(question: str) -> float:
    """A number in [0, 1) that belongs to the question's words alone; white space and case don't count."""
    words = " ".join(question.lower().split())
    return int.from_bytes(hashlib.sha256(words.encode("utf-8", "surrogatepass")).digest()[:6], "big") / 2**48


def _gsm_symbolic(split: str, limit: int, seed: int) -> list[Problem]:
    """GSM-Symbolic (Mirzadeh et al. 2024) by reasoning-gym: 100 templates with fresh names and numbers.

    A third of an endless stream goes to each split by `_place`: no question is in two splits, for any seeds.
    """
    import reasoning_gym

    problems: list[Problem] = []
    seen: set[str] = set()
    start, size, most = 0, 4 * limit + 64, 50 * limit + 5000
    while start < most:
        # A longer stream starts with the shorter one.
        stream = reasoning_gym.create_dataset("gsm_symbolic", size=size, seed=seed * 10_000_000)
        for row in (stream[i] for i in range(start, size)):
            question = row["question"]
            if question in seen or int(3 * _place(question)) != SPLITS.index(split):
                continue
            seen.add(question)
            name = f"gsm_symbolic/{split}/{seed}/{len(problems)}"
            problems.append(Problem(name, question, str(row["answer"])))
            if len(problems) == limit:
                return problems
        start, size = size, min(2 * size, most)
    raise UserError(f"gsm_symbolic has only {len(problems)} different {split} questions; ask for fewer")


def _synthetic(split: str, limit: int, seed: int) -> list[Problem]:
    """Sums of the small world (`semspec.problems.language`); a third of the stream goes to each split, as above."""
    rng, questions = Random(f"synthetic/{seed}"), dict[str, str]()
    for _ in range(50 * limit + 5000):
        made = language.problem(rng)
        question = made.question
        if question not in questions and int(3 * _place(question)) == SPLITS.index(split):
            questions[question] = made.answer
            if len(questions) == limit:
                return [Problem(f"synthetic/{split}/{seed}/{i}", q, a) for i, (q, a) in enumerate(questions.items())]
    raise UserError(f"synthetic has only {len(questions)} different {split} questions; ask for fewer")


def _gsm8k(split: str, limit: int, folder: Path | None) -> list[Problem]:
    part = "test" if split == "test" else "train"
    if folder is not None:
        problems = read_problems(folder / "gsm8k" / f"{part}.jsonl")
    else:
        rows = _hub_parquet(*GSM8K, f"main/{part}-00000-of-00001.parquet", "gsm8k")
        golds = (r["answer"].rpartition("####")[2].strip().replace(",", "") for r in rows)
        problems = [
            Problem(f"gsm8k/{part}/{i}", row["question"], gold)
            for i, (row, gold) in enumerate(zip(rows, golds, strict=True))
        ]
    if split != "test":
        validation = split == "validation"
        problems = [p for p in problems if (_place(p.question) < VALIDATION_SHARE) == validation]
    return problems[:limit]


def _math500(split: str, limit: int, folder: Path | None) -> list[Problem]:
    if split != "test":
        raise UserError(f"math500 has only test questions; for {split} use gsm8k, gsm_symbolic or a FILE.jsonl")
    if folder is not None:
        return read_problems(folder / "math500" / "math500.jsonl")[:limit]
    path = _hub_file(*MATH500, "test.jsonl", "math500")
    rows = (json.loads(line) for line in path.read_text(encoding="utf-8").split("\n") if line.strip())
    return [Problem(f"math500/{r['unique_id']}", r["problem"], r["answer"]) for r in islice(rows, limit)]


def _hub_parquet(repo: str, revision: str, name: str, dataset: str) -> list[dict[str, Any]]:
    import pandas as pd

    return pd.read_parquet(_hub_file(repo, revision, name, dataset)).to_dict("records")


def _hub_file(repo: str, revision: str, name: str, dataset: str) -> Path:
    """A file of a hub data set at a fixed revision: from the cache, else downloaded."""
    import huggingface_hub as hub

    try:
        cached = hub.try_to_load_from_cache(repo, name, revision=revision, repo_type="dataset")
        if isinstance(cached, str):
            return Path(cached)
        # Ask once before the download, which tries an unreachable hub five times over half a minute.
        hub.get_session().head(hub.constants.ENDPOINT, timeout=10)
        return Path(hub.hf_hub_download(repo, name, revision=revision, repo_type="dataset"))
    except Exception as e:
        raise UserError(
            f"{dataset} could not be fetched from {repo} on the hub ({type(e).__name__}); "
            f"use a FILE.jsonl as the dataset, or --data-dir DIR with {dataset}/*.jsonl in it"
        ) from None


def read_problems(path: Path | str) -> list[Problem]:
    """Every problem of a JSONL file, in order: {"id", "question", "answer"} (and "domain") a line.

    A missing id becomes "FILENAME/LINE". `UserError` names the file and line of the first mistake.
    """
    path = Path(path)
    problems: list[Problem] = []
    lines: dict[str, int] = {}
    for number, value in _objects(path):
        problem = _problem(value, path, number)
        before = lines.setdefault(problem.id, number)
        if before != number:
            raise UserError(f"{path} line {number}: id '{problem.id}' is that of line {before}; ids must differ")
        problems.append(problem)
    if not problems:
        raise UserError(f'{path} holds no problem; write one a line: {{"question": ..., "answer": ...}}')
    return problems


def _objects(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """(line number, JSON object) of each line that is not blank."""
    for number, line in enumerate(_lines(path), 1):
        if not line.strip():
            continue
        try:
            value = json.loads(line)
        except (ValueError, RecursionError) as e:
            reason = f"column {e.colno}: {e.msg}" if isinstance(e, json.JSONDecodeError) else "too deep or too long"
            raise UserError(f"{path} line {number} is not valid JSON ({reason}); mend that line") from None
        if not isinstance(value, dict):
            raise UserError(f'{path} line {number} is not an object; write {{"question": ..., "answer": ...}}')
        yield number, value


def _lines(path: Path) -> Iterable[str]:
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except FileNotFoundError:
        raise UserError(f"{path} does not exist; check the path of the problem file") from None
    except UnicodeDecodeError as e:
        line = e.object[: e.start].count(b"\n") + 1
        raise UserError(f"{path} line {line} is not UTF-8 text; save the file as UTF-8") from None
    except OSError as e:
        raise UserError(f"{path} cannot be read ({e.strerror}); name a JSONL file") from None
    return text.split("\n")  # not splitlines: JSON text may hold U+2028 and its like


def _problem(row: dict[str, Any], path: Path, number: int) -> Problem:
    where = f"{path} line {number}"
    for name in ("question", "answer"):
        if row.get(name) is None:
            raise UserError(f"{where} has no '{name}'; every problem needs a question and an answer")
    question, answer = row["question"], row["answer"]
    if not isinstance(question, str) or not question.strip():
        raise UserError(f"{where}: the question is empty or not text; write the question as a string")
    number_like = isinstance(answer, int | float) and not isinstance(answer, bool)
    if not (isinstance(answer, str) or number_like) or (isinstance(answer, float) and not math.isfinite(answer)):
        raise UserError(f"{where}: the answer is neither text nor a number; write it as a string or a number")
    answer = str(answer).strip()
    if not answer:
        raise UserError(f"{where}: the answer is empty; write the gold answer")
    key: Any = row.get("id")
    if key is None:
        key = f"{path.name}/{number}"
    if isinstance(key, bool) or not isinstance(key, str | int) or not str(key).strip():
        raise UserError(f"{where}: the id is empty or neither text nor a whole number; write it as a string")
    domain = row["domain"] if isinstance(row.get("domain"), str) and row["domain"] else "math"
    problem = Problem(str(key), question, answer, domain)
    try:
        "".join(asdict(problem).values()).encode("utf-8")
    except UnicodeEncodeError:
        raise UserError(f"{where} holds half of a surrogate pair; write the character itself") from None
    return problem

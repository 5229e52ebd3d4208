"""Benchmark problems: generated, from the hub, or from a file of the user's, in one form.

Whatever the source, the same arguments give the same problems in the same order, and train, validation and
test never share a question: in the generated sets and in GSM8K's training file, a question's own text decides
which split it belongs to. Knows nothing of prompts, models or how an output is graded.
"""

from __future__ import annotations

import difflib
import hashlib
import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any, Literal

from semspec import provenance
from semspec.errors import UserError
from semspec.files import sha256
from semspec.problems import language
from semspec.problems.answer import boxes, final_answer
from semspec.problems.jsonl import after_hashes, objects, read_problems, to_problem
from semspec.problems.problem import Problem, as_choice

Split = Literal["train", "validation", "test"]
SPLITS = ("train", "validation", "test")
VALIDATION_SHARE = 0.1  # of GSM8K's and s1K's training files
S1K_DOMAINS = ("math", "science")
GSM8K = ("openai/gsm8k", "740312add88f781978c0658806c59bc2815b9866")
S1K = ("simplescaling/s1K-1.1", None)  # no pinned revision: the ids of its problems name the commit in use
S1K_FILE = "data/train-00000-of-00001.parquet"
# Sets with test questions only: repository, revision and file on the hub.
TEST_ONLY = {
    "math500": ("HuggingFaceH4/MATH-500", "6e4ed1a2a79af7d8630a6b768ec859cb5af4d3be", "test.jsonl"),
    "aime24": ("math-ai/aime24", "83a7f387baaa524a8bda0022eac0541582297103", "test-00000-of-00001.parquet"),
    "amc23": ("math-ai/amc23", "80815d37005feb82cd7f8fbc6901d5d3eff43057", "test-00000-of-00001.parquet"),
    "gpqa_diamond": ("Idavidrein/gpqa", "633f5ee89ab8ad4522a9f850766b73f62147ffdd", "gpqa_diamond.csv"),
}
GENERATED = {"gsm_symbolic": "reasoning-gym", "synthetic": "semspec"}  # by which package
DATASETS = ("gsm_symbolic", "gsm8k", *TEST_ONLY, "s1k", *(f"s1k:{d}" for d in S1K_DOMAINS), "synthetic")
_GPQA_OPTIONS = ("Correct Answer", "Incorrect Answer 1", "Incorrect Answer 2", "Incorrect Answer 3")
# SHA-256 (first 12 digits) of the letters and digits of s1K's questions that MATH-500 has too.
S1K_IN_MATH500 = frozenset({"93915f4fdfc6", "338dfa70548e", "a9597142e19c"})
S1K_CHAINS = ("deepseek_thinking_trajectory", "gemini_thinking_trajectory", "trace")  # the first that a row has


def load(dataset: str, split: Split, limit: int, seed: int = 0, data_dir: Path | str | None = None) -> list[Problem]:
    """The first `limit` problems of a split; fewer when the set has no more.

    dataset: a name of `DATASETS`, or the path of a `.jsonl` file, used as it is whatever the split. seed: of the
    generated sets, and of the order in which options are shown; else the published order is kept. data_dir: a folder
    that holds `gsm8k/{train,test}.jsonl`, `s1k/s1k_questions.jsonl`, or `NAME/NAME.jsonl` for the sets of `TEST_ONLY`,
    read instead of the hub.
    Raises `UserError` when the name is unknown or the problems cannot be had.
    """
    if split not in SPLITS:
        raise UserError(f"unknown split '{split}'; use train, validation or test")
    if limit < 1:
        raise UserError(f"the number of problems is {limit}; ask for at least 1")
    if dataset.endswith(".jsonl"):
        return read_problems(dataset, seed)[:limit]
    if dataset == "gsm_symbolic":
        return _gsm_symbolic(split, limit, seed)
    if dataset == "synthetic":
        return _synthetic(split, limit, seed)
    folder = Path(data_dir) if data_dir is not None else None
    if dataset == "gsm8k":
        return _gsm8k(split, limit, folder)
    if dataset in TEST_ONLY:
        return _test_only(dataset, split, limit, seed, folder)
    if dataset.partition(":")[0] == "s1k" and dataset in DATASETS:
        return _s1k(dataset, split, limit, folder)
    raise _unknown(dataset)


def source(dataset: str, split: Split, data_dir: Path | str | None = None) -> str:
    """Where `load` has the problems from: `REPOSITORY@REVISION` on the hub, `PACKAGE VERSION` that generates them, or
    `FILE sha256:DIGEST`. Names no folder.
    """
    if dataset in GENERATED:
        return f"{GENERATED[dataset]} {provenance.version(GENERATED[dataset])}"
    if dataset.endswith(".jsonl") or data_dir is not None:
        file = Path(dataset) if dataset.endswith(".jsonl") else _local(dataset, split, Path(str(data_dir)))
        return f"{file.name} sha256:{sha256(file)}"
    if dataset.partition(":")[0] == "s1k":
        return f"{S1K[0]}@{_commit(_hub_file(*S1K, S1K_FILE, 's1k'))}"
    repo, revision = GSM8K if dataset == "gsm8k" else TEST_ONLY[dataset][:2]
    return f"{repo}@{revision}"


def check_dataset(dataset: str, split: Split, data_dir: Path | str | None = None) -> None:
    """`UserError` when the name is unknown, the file is none, or the set has no such split; fetches nothing."""
    if dataset.endswith(".jsonl"):
        read_problems(dataset)
    elif dataset not in DATASETS:
        raise _unknown(dataset)
    elif dataset in TEST_ONLY and split != "test":
        raise _no_split(dataset, split)
    elif dataset.partition(":")[0] == "s1k" and split == "test":
        raise _no_test(dataset)
    elif data_dir is not None and dataset not in GENERATED:
        load(dataset, split, 1, data_dir=data_dir)


def check_apart(trained_on: str, tested_on: str) -> None:
    """`UserError` when two files, or one and itself, share questions; every other set keeps its splits apart."""
    if not (trained_on.endswith(".jsonl") and tested_on.endswith(".jsonl")):
        return
    shared = trained_on
    if Path(trained_on).resolve() != Path(tested_on).resolve():
        if not Path(trained_on).exists():  # of probes from elsewhere
            return
        train, test = (_words(read_problems(file)) for file in (trained_on, tested_on))
        if not train & test:
            return
        shared = f"{len(train & test)} questions of {trained_on}"
    raise UserError(
        f"the probes would be tested on what they are trained on ({shared}); "
        "write two files without a question in common, one for contexts.dataset and one for bench.dataset"
    )


def _local(dataset: str, split: str, folder: Path) -> Path:
    """The file of a published set in a `data_dir`."""
    if dataset == "gsm8k":
        return folder / "gsm8k" / f"{_published(split)}.jsonl"
    name = dataset.partition(":")[0]
    return folder / name / ("s1k_questions.jsonl" if name == "s1k" else f"{name}.jsonl")


def _published(split: str) -> str:
    """GSM8K's own split, of which ours is one or a part."""
    return "test" if split == "test" else "train"


def _words(problems: Iterable[Problem]) -> set[str]:
    return {" ".join(p.question.lower().split()) for p in problems}


def _unknown(dataset: str) -> UserError:
    close = difflib.get_close_matches(dataset.lower(), DATASETS, n=1)
    hint = f"did you mean '{close[0]}'?" if close else f"use {', '.join(DATASETS)} or a file that ends in .jsonl"
    return UserError(f"unknown dataset '{dataset}'; {hint}")


def _no_split(dataset: str, split: str) -> UserError:
    return UserError(f"{dataset} has only test questions; for {split} use gsm8k, gsm_symbolic or a FILE.jsonl")


def _no_test(dataset: str) -> UserError:
    return UserError(f"{dataset} has only training questions; for test use aime24, amc23, math500 or gpqa_diamond")


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
    part = _published(split)
    if folder is not None:
        problems = read_problems(_local("gsm8k", split, folder))
    else:
        rows = _hub_rows(*GSM8K, f"main/{part}-00000-of-00001.parquet", "gsm8k")
        problems = [Problem(f"gsm8k/{part}/{i}", r["question"], after_hashes(r["answer"])) for i, r in enumerate(rows)]
    if split != "test":
        problems = _part(problems, split)
    return problems[:limit]


def _part(problems: Iterable[Problem], split: str) -> list[Problem]:
    """The training or the validation part of training questions, by their own words."""
    return [p for p in problems if (_place(p.question) < VALIDATION_SHARE) == (split == "validation")]


def _test_only(dataset: str, split: str, limit: int, seed: int, folder: Path | None) -> list[Problem]:
    if split != "test":
        raise _no_split(dataset, split)
    if folder is not None:
        # GPQA's source has the right option first
        problems = read_problems(_local(dataset, split, folder), seed, dataset != "gpqa_diamond")[:limit]
        return [replace(p, domain="science") for p in problems] if dataset == "gpqa_diamond" else problems
    rows = _hub_rows(*TEST_ONLY[dataset], dataset)[:limit]
    if dataset == "gpqa_diamond":
        return [_gpqa(r, i, seed) for i, r in enumerate(rows)]
    problems = []
    for i, row in enumerate(rows):
        key = row.get("unique_id", row.get("id", i))
        question = row["problem"] if "problem" in row else row["question"]
        answer = str(row["answer"] if "answer" in row else row["solution"]).strip()
        if dataset != "math500":  # integers, perhaps as 27.0 or \\boxed{27}
            answer = re.sub(r"\.0+$", "", final_answer(answer) or answer)
        problems.append(Problem(f"{dataset}/{key}", question, answer))
    return problems


def _gpqa(row: dict[str, Any], place: int, seed: int) -> Problem:
    options = [row[name].strip() for name in _GPQA_OPTIONS]
    name = f"gpqa_diamond/{row.get('Record ID') or place}"
    return as_choice(Problem(name, row["Question"].strip(), "A", "science"), options, seed, ordered=False)


def _s1k(dataset: str, split: str, limit: int, folder: Path | None) -> list[Problem]:
    """S1K (Muennighoff et al. 2025) without the questions that have no short answer or are in MATH-500.

    A tenth is for validation, by `_place`. "s1k:math" and "s1k:science" are the questions of one domain.
    """
    if split == "test":
        raise _no_test(dataset)
    wanted = dataset.partition(":")[2]
    return _part((p for p, _ in _s1k_rows(folder) if wanted in ("", p.domain)), split)[:limit]


def s1k_chains(data_dir: Path | str | None = None) -> dict[str, str]:
    """{problem id: its reasoning chain}, of those problems of `s1k`, whatever their split, whose source has one."""
    found = {}
    for problem, row in _s1k_rows(Path(data_dir) if data_dir is not None else None):
        chains = [row[name] for name in S1K_CHAINS if isinstance(row.get(name), str) and row[name].strip()]
        if chains:
            found[problem.id] = chains[0]
    return found


def _s1k_rows(folder: Path | None) -> Iterator[tuple[Problem, dict[str, Any]]]:
    """The problems that are used, each with its row in the source."""
    rows = _s1k_hub() if folder is None else _s1k_folder(_local("s1k", "train", folder))
    return ((p, row) for p, row in rows if _letters_hash(p.question) not in S1K_IN_MATH500)


def _s1k_folder(path: Path) -> Iterator[tuple[Problem, dict[str, Any]]]:
    for number, row in objects(path):
        if row.get("answer") is not None:
            yield replace(to_problem(row, path, number, 0), domain=_s1k_domain(row)), row


def _s1k_hub() -> Iterator[tuple[Problem, dict[str, Any]]]:
    path = _hub_file(*S1K, S1K_FILE, "s1k")
    for i, row in enumerate(_table(path)):
        answer = _short_answer(str(row["solution"]))
        if answer:
            yield Problem(f"s1k@{_commit(path)[:12]}/{i}", row["question"], answer, _s1k_domain(row)), row


def _commit(path: Path) -> str:
    """The commit of a file in the hub's cache, which keeps it as snapshots/COMMIT/data/FILE."""
    return path.parent.parent.name


def _s1k_domain(row: dict[str, Any]) -> str:
    """Math, science or other: `cot_type` of the hub's file, else `domain` or `domain_guess`."""
    named = str(row.get("cot_type") or row.get("domain") or row.get("domain_guess") or "math")
    return {"math_or_other": "math", "crossword": "other"}.get(named, named)


def _short_answer(solution: str) -> str | None:
    """The last box of a solution, or all of it where it is short; None for proofs and explanations."""
    for start, end in boxes(solution)[-1:]:
        return solution[start:end].strip()
    solution = solution.strip()
    return solution if 0 < len(solution) <= 60 and "\n" not in solution else None


def _letters_hash(question: str) -> str:
    return hashlib.sha256(re.sub(r"[^a-z0-9]", "", question.lower()).encode()).hexdigest()[:12]


def _hub_rows(repo: str, revision: str | None, name: str, dataset: str) -> list[dict[str, Any]]:
    return _table(_hub_file(repo, revision, name, dataset))


def _table(path: Path) -> list[dict[str, Any]]:
    """Rows of a published parquet, CSV or JSONL file; everything in a CSV is text."""
    import pandas as pd

    if path.suffix == ".jsonl":
        return [json.loads(line) for line in path.read_text(encoding="utf-8").split("\n") if line.strip()]
    if path.suffix == ".csv":
        return pd.read_csv(path, dtype=str, keep_default_na=False).to_dict("records")
    return pd.read_parquet(path).to_dict("records")


def _hub_file(repo: str, revision: str | None, name: str, dataset: str) -> Path:
    """A file of a hub data set at a fixed revision (None: what `main` is): from the cache, else downloaded."""
    import huggingface_hub as hub
    from huggingface_hub.errors import GatedRepoError

    try:
        cached = hub.try_to_load_from_cache(repo, name, revision=revision, repo_type="dataset")
        if isinstance(cached, str):
            return Path(cached)
        # Ask once before the download, which tries an unreachable hub five times over half a minute.
        hub.get_session().head(hub.constants.ENDPOINT, timeout=10)
        return Path(hub.hf_hub_download(repo, name, revision=revision, repo_type="dataset"))
    except GatedRepoError:
        raise UserError(
            f"{dataset} is gated: accept its terms at https://huggingface.co/datasets/{repo} and run `hf auth login`, "
            f"or use --data-dir DIR with {dataset}/*.jsonl in it"
        ) from None
    except Exception as e:
        raise UserError(
            f"{dataset} could not be fetched from {repo} on the hub ({type(e).__name__}); "
            f"use a FILE.jsonl as the dataset, or --data-dir DIR (contexts.data_dir) with {dataset}/*.jsonl in it"
        ) from None

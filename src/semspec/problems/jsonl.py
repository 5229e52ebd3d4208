"""Problems from a JSONL file, a user's own or a published set in the same form; a mistake is told with its line.

Knows the form of a line; knows nothing of the published sets or of splits.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from semspec.errors import UserError
from semspec.problems.choice import LETTERS
from semspec.problems.problem import Problem, as_choice


def read_problems(path: Path | str, seed: int = 0, ordered: bool = True) -> list[Problem]:
    """Every problem of a JSONL file, in order: {"id", "question", "answer"} (and "domain", "choices") a line.

    "choices", {"A": ...} or a list, makes it multiple choice: the answer is one's key, letter or text, and they are
    shown in an order that follows from `seed`. Of an answer such as GSM8K's own, what follows the last "####" is kept.
    A missing id becomes "FILENAME/LINE". ordered: options that name each other keep their order. `UserError` names the
    file and line of the first mistake.
    """
    path = Path(path)
    problems: list[Problem] = []
    lines: dict[str, int] = {}
    for number, value in objects(path):
        problem = to_problem(value, path, number, seed, ordered)
        before = lines.setdefault(problem.id, number)
        if before != number:
            raise UserError(f"{path} line {number}: id '{problem.id}' is that of line {before}; ids must differ")
        problems.append(problem)
    if not problems:
        raise UserError(f'{path} holds no problem; write one a line: {{"question": ..., "answer": ...}}')
    return problems


def objects(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
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


def to_problem(row: dict[str, Any], path: Path, number: int, seed: int, ordered: bool = True) -> Problem:
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
    answer = after_hashes(str(answer)).strip()
    if not answer:
        raise UserError(f"{where}: the answer is empty; write the gold answer")
    key: Any = row.get("id")
    if key is None:
        key = f"{path.name}/{number}"
    if isinstance(key, bool) or not isinstance(key, str | int) or not str(key).strip():
        raise UserError(f"{where}: the id is empty or neither text nor a whole number; write it as a string")
    domain = row["domain"] if isinstance(row.get("domain"), str) and row["domain"] else "math"
    problem = Problem(str(key), question, answer, domain)
    if row.get("choices") is not None:
        problem = _with_choices(problem, row["choices"], where, seed, ordered)
    try:
        "".join((problem.id, problem.question, problem.answer, problem.domain)).encode("utf-8")
    except UnicodeEncodeError:
        raise UserError(f"{where} holds half of a surrogate pair; write the character itself") from None
    return problem


def after_hashes(answer: str) -> str:
    """What follows the last "####" of an answer with its rationale, as GSM8K has it; else the answer as it is."""
    _, hashes, last = answer.rpartition("####")
    return re.sub(r"(?<=\d),(?=\d{3}(?!\d))", "", last.strip()) if hashes else answer


def _with_choices(problem: Problem, choices: Any, where: str, seed: int, ordered: bool) -> Problem:
    """The multiple-choice problem of a file's row; its answer is a key or letter of `choices`, or one's text."""
    keys = list(choices) if isinstance(choices, dict) else list(LETTERS)
    options = list(choices.values()) if isinstance(choices, dict) else choices
    if not isinstance(options, list) or not 2 <= len(options) <= len(LETTERS):
        raise UserError(f'{where}: choices are 2 to {len(LETTERS)} options; write them as {{"A": ..., "B": ...}}')
    if not all(isinstance(option, str) and option.strip() for option in options):
        raise UserError(f"{where}: an option is empty or not text; write every option as a string")
    options = [option.strip() for option in options]
    for names in (keys[: len(options)], options):
        if names.count(problem.answer) == 1:
            answer = LETTERS[names.index(problem.answer)]
            return as_choice(replace(problem, answer=answer), options, seed, ordered)
    raise UserError(f"{where}: the answer '{problem.answer[:40]}' is none of the choices; write the letter of one")

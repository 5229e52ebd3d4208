"""A problem: a question with its gold answer, and the identity of a set of them. Knows no source of problems."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace

from semspec.problems.choice import LETTERS, question_text, shuffled


@dataclass(frozen=True)
class Problem:
    """A question and its gold answer. `kind` names how it is graded, `domain` what it is about.

    Of kind "choice", the question ends with its options, `answer` is the letter of one, `choices` are their texts as
    shown, and `order` where each of them stood in the source: "CAB" shows the third option first.
    """

    id: str
    question: str
    answer: str
    domain: str = "math"
    kind: str = "math"
    choices: tuple[str, ...] = ()
    order: str = ""


def dataset_id(problems: Sequence[Problem]) -> str:
    """SHA-256 (hex) of the problems, order included: equal ids mean the same questions and gold answers."""
    rows = [{k: v for k, v in asdict(p).items() if v or k not in ("choices", "order")} for p in problems]
    text = json.dumps(rows, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode("ascii")).hexdigest()


def as_choice(problem: Problem, options: Sequence[str], seed: int, ordered: bool = True) -> Problem:
    """A problem whose answer is a letter of `options`, with them shuffled and written under its question.

    ordered: the order of `options` is one to show, so that options that name each other keep it.
    """
    order = shuffled(options, seed, problem.id, ordered)
    shown = tuple(options[LETTERS.index(letter)] for letter in order)
    return replace(
        problem,
        question=question_text(problem.question, shown),
        answer=LETTERS[order.index(problem.answer)],
        kind="choice",
        choices=shown,
        order=order,
    )

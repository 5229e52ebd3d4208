"""A page for each problem: its question and, for every method, the chain of steps and how the answer was graded.

Rows of results.jsonl in; small pages that need nothing else, and the list of them for the main page, out. At most
`MAX_PAGES` problems and `MAX_REPEATS` answers of a method to each get a page; the token budget bounds an answer.
Text of models and problems reaches a page escaped. Knows no metric.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from semspec.files import atomic

MAX_PAGES = 300
MAX_REPEATS = 3
MAX_NAME = 60


@dataclass
class Problem:
    """One problem and its answers, {method: rows, one a repeat}."""

    id: str
    question: str
    gold: str
    answers: dict[str, list[Mapping[str, Any]]] = field(default_factory=dict)

    @property
    def file(self) -> str:
        """The name of its page: the id where that is plain, else what is plain of it and eight digits of its hash."""
        if re.fullmatch(r"[a-z0-9][a-z0-9_-]*", self.id) and len(self.id) <= MAX_NAME:
            return f"{self.id}.html"
        plain = re.sub(r"[^A-Za-z0-9_-]+", "-", self.id).strip("-")[:MAX_NAME]
        return f"{plain or 'problem'}-{hashlib.sha256(self.id.encode()).hexdigest()[:8]}.html"

    def mark(self, method: str) -> dict[str, Any] | None:
        """Right answers of all, mean seconds; None where the method did not answer."""
        rows = self.answers.get(method)
        if not rows:
            return None
        right = sum(bool(r["correct"]) for r in rows)
        seconds = sum(r["latency_s"] for r in rows) / len(rows)
        return {"right": right, "of": len(rows), "seconds": seconds}


def collect(rows: Sequence[Mapping[str, Any]]) -> list[Problem]:
    """The problems in the order of the rows."""
    found: dict[str, Problem] = {}
    for row in rows:
        id = str(row["id"])
        problem = found.setdefault(id, Problem(id, row["question"], row["gold"]))
        problem.answers.setdefault(row["method"], []).append(row)
    return list(found.values())


def write(problems: Sequence[Problem], names: Sequence[str], folder: Path, template: Any) -> list[Problem]:
    """Write the pages of the first `MAX_PAGES` problems into `folder`, remove those of an earlier run; returns them."""
    shown = list(problems[:MAX_PAGES])
    for old in set(folder.glob("*.html")) - {folder / p.file for p in shown}:
        old.unlink()
    for place, problem in enumerate(shown):
        html = template.render(
            problem=problem,
            answers=[(n, problem.mark(n), problem.answers[n][:MAX_REPEATS]) for n in names if n in problem.answers],
            before=shown[place - 1].file if place else None,
            after=shown[place + 1].file if place + 1 < len(shown) else None,
            number=place + 1,
            total=len(problems),
        )
        with atomic(folder / problem.file) as t:
            t.write_text(html, encoding="utf-8")
    return shown

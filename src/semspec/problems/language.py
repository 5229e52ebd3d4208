"""A small language of arithmetic in which the meaning of a reasoning step can be computed.

A problem is a chain of additions and subtractions. A step of a solution does the next one or two of them, or says where
it stands, in one of many surface forms; `meaning` reads any of them back, right or wrong, so labels and probes can be
judged against the truth. Running values have two digits and operands one, so a number tells which of both it is. Every
function is pure. It knows nothing of models, of samples, or of how labels are made.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterable, Sequence
from functools import lru_cache
from itertools import product
from random import Random
from typing import NamedTuple

LOW, HIGH = 10, 29  # bounds of every running value
OPERANDS = range(1, 10)
LENGTHS = range(2, 6)  # operations in a problem
PAIR = 0.3  # chance that a step does two operations
STATE = 0.15  # chance that a step only says where we are

_WORDS = {
    1: {"op": "+", "plus": "plus", "Adding": "Adding", "adding": "adding", "to": "to", "gives": "gives"},
    -1: {"op": "-", "plus": "minus", "Adding": "Taking", "adding": "taking", "to": "from", "gives": "leaves"},
}
# {a} the value before, {b} {d} the operands, {m} the value between them, {c} the value after. [op] is a word that
# depends on the sign of the first operation, [op2] on that of the second.
_TEMPLATES = {
    "one": (
        "{a} [op] {b} = {c}.",
        "{b} + {a} = {c}.",
        "Then {a} [op] {b} [gives] {c}.",
        "[Adding] {b} [to] {a} [gives] {c}.",
        "[Adding] {b} [gives] {c}.",
        "So {a} [plus] {b} is {c}.",
        "Now we have {c}, as {a} [op] {b} = {c}.",
        "{a} [op] {b} = {c}, so we have {c}.",
    ),
    "two": (
        "{a} [op] {b} [op2] {d} = {c}.",
        "{a} [op] {b} = {m} and {m} [op2] {d} = {c}.",
        "{a} [op] {b} = {m}, then {m} [op2] {d} = {c}.",
        "[Adding] {b} and [adding2] {d} [gives2] {c}.",
    ),
    "state": ("So far we have {c}.", "The value is now {c}.", "We are at {c}."),
    "answer": ("The answer is \\boxed{{c}}.", "So the result is \\boxed{{c}}.", "This makes \\boxed{{c}} in the end."),
}
_SIGNS = {"one": 1, "two": 2, "state": 0, "answer": 0}
_QUESTION = re.compile(r"Start with ([0-9]{1,4})\.((?: (?:Add|Take) [0-9]{1,4}\.)+) What is the result\?")
_CHANGE = re.compile(r"(Add|Take) ([0-9]+)")


class Problem(NamedTuple):
    """A start and the signed numbers that are added to it, one after the other."""

    start: int
    changes: tuple[int, ...]

    @property
    def question(self) -> str:
        todo = " ".join(f"{'Add' if c > 0 else 'Take'} {abs(c)}." for c in self.changes)
        return f"Start with {self.start}. {todo} What is the result?"

    @property
    def answer(self) -> str:
        return str(self.start + sum(self.changes))


class Form(NamedTuple):
    """One way to say a thing: text with {a}, {b} ... in it, and the pattern that reads it back."""

    kind: str
    signs: tuple[int, ...]
    text: str
    pattern: re.Pattern[str]


def _form(kind: str, signs: tuple[int, ...], template: str) -> Form:
    for mark, sign in zip(("", "2"), signs, strict=False):
        for key, word in _WORDS[sign].items():
            template = template.replace(f"[{key}{mark}]", word)
    pattern, seen = "", set[str]()
    for piece in re.split(r"(\{[a-z]\})", template):
        name = piece[1:-1]
        if not re.fullmatch(r"\{[a-z]\}", piece):
            pattern += re.escape(piece)
        elif name in seen:
            pattern += f"(?P={name})"
        else:
            pattern += f"(?P<{name}>[0-9]{{1,4}})"
            seen.add(name)
    return Form(kind, signs, template, re.compile(pattern))


def _forms() -> Iterable[Form]:
    for kind, templates in _TEMPLATES.items():
        for signs in product((1, -1), repeat=_SIGNS[kind]):
            for template in templates:
                if " + " not in template or signs == (1,):  # only a sum may swap its operands
                    yield _form(kind, signs, template)


FORMS = tuple(_forms())
_CHOICES = {key: [f for f in FORMS if (f.kind, f.signs) == key] for key in {(f.kind, f.signs) for f in FORMS}}


def problem(rng: Random) -> Problem:
    """A random problem; its operands differ, and every running value lies in [LOW, HIGH]."""
    start = value = rng.randint(LOW, HIGH)
    changes: list[int] = []
    for operand in rng.sample(OPERANDS, rng.choice(LENGTHS)):
        change = rng.choice([c for c in (operand, -operand) if LOW <= value + c <= HIGH])
        changes.append(change)
        value += change
    return Problem(start, tuple(changes))


def parse(question: str) -> Problem | None:
    """The problem that a question asks; None when it is no question of this language."""
    found = _QUESTION.fullmatch(question.strip())
    if found is None:
        return None
    return Problem(int(found[1]), tuple(int(n) if verb == "Add" else -int(n) for verb, n in _CHANGE.findall(found[2])))


def solution(problem: Problem, rng: Random) -> list[str]:
    """The steps of a random right solution. All but the last, which states the answer, end with a blank line."""
    value, todo, steps, stated = problem.start, list(problem.changes), list[str](), False
    while todo:
        stated = not stated and rng.random() < STATE
        n = 0 if stated else 2 if len(todo) > 1 and rng.random() < PAIR else 1
        steps.append(write(("state", "one", "two")[n], value, todo[:n], rng) + "\n\n")
        value, todo = value + sum(todo[:n]), todo[n:]
    return [*steps, write("answer", value, [], rng)]


def write(kind: str, value: int, changes: Sequence[int], rng: Random) -> str:
    """A step of `kind` (one, two, state, answer) in a random form: `changes` are applied to `value`."""
    signs = tuple(1 if c > 0 else -1 for c in changes)
    numbers = {"a": value, "c": value + sum(changes)}
    numbers |= zip("bd", map(abs, changes), strict=False)
    if changes:
        numbers["m"] = value + changes[0]
    text = rng.choice(_CHOICES[kind, signs]).text
    for name, number in numbers.items():
        text = text.replace(f"{{{name}}}", str(number))
    return text


@lru_cache(maxsize=1 << 16)
def _read(step: str) -> tuple[str, int | None, tuple[int, ...], int] | None:
    """What a step says: kind, the value before (None: not said), the signed operands, the value after."""
    for form in FORMS:
        if match := form.pattern.fullmatch(step):
            found = {name: int(number) for name, number in match.groupdict().items()}
            changes = tuple(sign * found[name] for sign, name in zip(form.signs, "bd", strict=False))
            return form.kind, found.get("a"), changes, found["c"]
    return None


def _value(question: str, steps: Sequence[str]) -> int | None:
    """The running value that the last readable step, or else the question, leaves."""
    for step in reversed(list(steps)):
        if said := _read(step.strip()):
            return said[3]
    asked = parse(question)
    return asked.start if asked else None


def meaning(question: str, steps: Sequence[str], step: str) -> Hashable:
    """What `step` means after `steps` of an answer to `question`; two steps mean the same when this is equal.

    ("step", terms, value): the running value and the operands that are summed up, in order of size, and the result
    that is claimed for them, be it right or wrong; ("state", value); ("answer", value); or ("text", the step) when
    it has no form of this language. A step that leaves out the running value means the one of its context.
    """
    text = step.strip()
    said = _read(text)
    if said is None:
        return ("text", text)
    kind, before, changes, after = said
    if not changes:
        return (kind, after)
    if before is None:
        before = _value(question, steps)
    return ("text", text) if before is None else ("step", tuple(sorted((before, *changes))), after)

"""The mathematics gate: do two reasoning steps make the same numerical claim?

Compares the numbers, equations and results of two steps by value (1/2 is .5, 15% is .15, a sign counts), in
any order. "different" is a contradiction or a claim that the other step lacks, "same" means that the
mathematics of one is covered by the other's, "unknown" that neither says anything numerical. It knows nothing
of words beyond number words ("half", "twice"); a language model judges the rest. The cost grows linearly with
the text.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterable, Set
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Literal

from semspec.problems.answer import boxes
from semspec.problems.grading import same_number
from semspec.semantics.expressions import Chain, Item, Quantity, equations, numbers, stated, tokenise, whole_value
from semspec.semantics.normalise import normalise

Verdict = Literal["same", "different", "unknown"]

MAX_CHARS = 20_000

_CLASS = {"+": "additive", "-": "additive", "*": "multiplicative", "/": "multiplicative", "^": "multiplicative"}
_CARDINALS = {
    **dict(
        zip(
            ("two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"),
            range(2, 11),
            strict=True,
        )
    ),
    **{
        "eleven": 11,
        "twelve": 12,
        "thirteen": 13,
        "fourteen": 14,
        "fifteen": 15,
        "sixteen": 16,
        "twenty": 20,
    },
    **{"thirty": 30, "forty": 40, "fifty": 50, "sixty": 60, "hundred": 100, "thousand": 1000, "dozen": 12},
    **dict.fromkeys(("twice", "double", "doubled", "doubles", "both"), 2),
    **dict.fromkeys(("thrice", "triple", "tripled", "triples"), 3),
}
_PARTS = {
    **dict.fromkeys(("half", "halve", "halved"), 2),
    **dict.fromkeys(("third", "thirds"), 3),
    **dict.fromkeys(("quarter", "quarters", "fourth"), 4),
}
# Words may stand for a number of the other step; they need not be repeated by it ("one" is mostly a pronoun).
_NUMBER_WORDS: dict[str, tuple[Fraction, ...]] = {
    **{w: (Fraction(n),) for w, n in _CARDINALS.items()},
    **{w: (Fraction(1, n), Fraction(n)) for w, n in _PARTS.items()},
}
_SIGN = re.compile(r"^\s*[-−–]\s+")  # a minus in a box, which in front of a step is a bullet
_ROWS = re.compile(r"\\\\|&")  # of a matrix: what stands in them is no sum or product


@dataclass(frozen=True)
class Claims:
    """What a step says numerically."""

    numbers: tuple[Item, ...]
    covers: dict[Fraction, int | None]  # every value that the step mentions -> decimals it was written with
    ladder: tuple[float, ...]  # the same values in order, to find one that is equal after rounding
    rungs: tuple[Quantity, ...]
    equations: tuple[Chain, ...]
    operators: frozenset[str]
    percent: bool
    stated: tuple[Quantity, ...]  # values that the step says are reached, beside its equations

    @property
    def empty(self) -> bool:
        return not self.numbers and not self.equations

    @property
    def last(self) -> Quantity | None:
        return self.numbers[-1][-1] if self.numbers else None


@lru_cache(maxsize=8192)
def claims(step: str) -> Claims:
    """What `step` (raw text) claims; of a text beyond MAX_CHARS, what its end claims."""
    text = normalise(step[-MAX_CHARS:])
    tokens = tokenise(text)
    found, chains = numbers(tokens), equations(tokens)
    covers: dict[Fraction, int | None] = {}
    for q in (q for item in found for q in item):
        covers.setdefault(q.value, q.decimals)
    for i, t in enumerate(tokens):
        if t.kind == "word":
            for value in _NUMBER_WORDS.get(t.text, ()):
                covers.setdefault(value, None)
            if t.text[:-2].isdecimal() and len(t.text) < 20:  # an ordinal
                covers.setdefault(Fraction(int(t.text[:-2])), None)
        if t.quantity and i and tokens[i - 1].text == "-":
            covers.setdefault(-t.quantity.value, t.quantity.decimals)
    for chain in chains:
        for side in chain.values:
            if side is not None:
                covers.setdefault(side, None)
    small = ((float(v), Quantity(v, d)) for v, d in covers.items() if _moderate(v))
    pairs = sorted(small, key=lambda p: p[0])
    return Claims(
        numbers=tuple(found),
        covers=covers,
        ladder=tuple(x for x, _ in pairs),
        rungs=tuple(q for _, q in pairs),
        equations=tuple(chains),
        operators=frozenset(o for chain in chains for o in chain.operators),
        percent="%" in text or "percentage" in text,
        stated=tuple(stated(tokens)),
    )


def _moderate(value: Fraction) -> bool:
    """Small enough for a float."""
    return value.numerator.bit_length() < 900


def close(a: Quantity, b: Quantity) -> bool:
    """Equal in value, or one is the other rounded (3.33 and 10/3; takes three significant digits)."""
    if a.value == b.value:
        return True
    decimals = [d for d in (a.decimals, b.decimals) if d is not None]
    return bool(decimals) and abs(a.value - b.value) <= Fraction(1, 2 * 10 ** min(decimals))


def _has(c: Claims, q: Quantity) -> bool:
    if q.value in c.covers:
        return True
    if not c.rungs or not _moderate(q.value):
        return False
    i = bisect_left(c.ladder, float(q.value))
    return any(close(q, r) for r in c.rungs[max(0, i - 1) : i + 1])


def _covered(items: Iterable[Item], c: Claims) -> bool:
    """Is every number mentioned by `c`? A ratio is when its value is, or both its parts are."""
    for item in items:
        if len(item) == 1 and not _has(c, item[0]):
            return False
        if len(item) == 3 and not (_has(c, item[2]) or (_has(c, item[0]) and _has(c, item[1]))):
            return False
    return True


def _same_result(a: Quantity, b: Quantity, percent: bool) -> bool:
    if close(a, b):
        return True
    return percent and (close(Quantity(a.value * 100), b) or close(a, Quantity(b.value * 100)))


def _contradict(a: Chain, b: Chain) -> bool:
    """Do two equations with the same result state different things of the same (or differently named)
    variables?
    """
    if a.relations != b.relations and {"<", ">"} & {*a.relations, *b.relations} and a.values == b.values:
        return True  # x > 5 and x < 5
    if set(a.relations) != set(b.relations):
        return False
    names = [{n for n in c.named if n} for c in (a, b)]
    if all(len(n) == 1 for n in names) and names[0] != names[1]:
        return True  # x = 4 and y = 4
    if not a.variables or a.variables != b.variables:
        return False
    ends = [(c.values[0], c.values[-1]) for c in (a, b)]
    gaps = [abs(left - right) for left, right in ends if left is not None and right is not None]
    return len(gaps) == 2 and gaps[0] != gaps[1]


def _listed(equation: Chain, c: Claims) -> bool:
    """Does `c` state an equation with the same result?"""
    return any(close(e.result, equation.result) for e in c.equations)


def _compatible(a: Claims, b: Claims) -> bool:
    """Results and operators, both steps having equations."""
    last_a, last_b = a.equations[-1], b.equations[-1]
    reordered = all(_listed(e, b) for e in a.equations[-20:]) and all(_listed(e, a) for e in b.equations[-20:])
    if not reordered and not _same_result(last_a.result, last_b.result, a.percent != b.percent):
        return False
    single = len(a.equations) == len(b.equations) == 1
    if (single or not reordered) and _contradict(last_a, last_b):
        return False
    return _nested(a.operators, b.operators) or (
        last_a.sound and last_b.sound and _nested({_CLASS[o] for o in a.operators}, {_CLASS[o] for o in b.operators})
    )


def _keeps(a: Claims, b: Claims) -> bool:
    """Does `b` say what is peculiar in `a`: its false equations, and the values that it says are reached?"""
    told = [sorted(v for v in e.values if v is not None) for e in b.equations]
    false = (sorted(v for v in e.values if v is not None) for e in a.equations if e.false)
    return all(f in told for f in false) and all(_has(b, q) for q in a.stated)


def _nested(a: Set[str], b: Set[str]) -> bool:
    return a <= b or b <= a


def answer(step: str) -> str | None:
    """What the last \\boxed{} of `step` (raw text) holds; None without one."""
    found = boxes(step)
    return step[slice(*found[-1])] if found else None


def same_answer(first: str, second: str) -> bool | None:
    """Do two steps that end the answer give the same one, by value? None where one of them gives none."""
    a, b = answer(first), answer(second)
    if a is None or b is None:
        return None
    plain = same_number(a, b)
    if plain is not None:
        return plain
    x, y = (normalise(_SIGN.sub("-", text)) for text in (a, b))
    if not _ROWS.search(a + b):
        left, right = whole_value(x), whole_value(y)
        if left is not None and right is not None:
            return left == right
    return x == y


def calculates(step: str) -> bool:
    """Does `step` (raw text) hold an equation?"""
    return bool(claims(step).equations)


def verdict(first: str, second: str) -> Verdict:
    """How two reasoning steps (raw text) compare. Symmetric; never raises."""
    a, b = claims(first), claims(second)
    if a.empty and b.empty:
        return "unknown"
    inside = bool(a.equations) and bool(b.equations)  # then only the numbers of equations have to be covered
    if inside:
        agree = _compatible(a, b)
    elif a.equations or b.equations:
        with_, without = (a, b) if a.equations else (b, a)
        agree = _has(without, with_.equations[-1].result)
    else:
        agree = bool(a.last and b.last and close(a.last, b.last)) or (_covered(a.numbers, b) and _covered(b.numbers, a))
    if not agree or not _keeps(a, b) or not _keeps(b, a):
        return "different"
    needed = [[n for e in c.equations for n in e.numbers] if inside else c.numbers for c in (a, b)]
    return "same" if _covered(needed[0], b) or _covered(needed[1], a) else "different"

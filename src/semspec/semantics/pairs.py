"""Pairs of made-up reasoning steps and whether one entails the other: what a cross-encoder is trained on.

A step makes one or two claims (a calculation, a value, a given, a plan, an equation solved ...), each of which can be
said in many ways: other words, the operands in another order, another notation. The second step of a pair makes the
same claims, or some are changed, left out or added; whether it follows from the first is decided on the claims, never
on the words. A quarter of the wordings and of the things spoken of is held out, for calibration. Every function is
pure. It knows nothing of models or of real steps, nor of the small world's language, which stays a test.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import NamedTuple

from semspec.semantics.normalise import normalise

LABELS = ("contradiction", "neutral", "entailment")
CONTRADICTION, NEUTRAL, ENTAILMENT = range(3)
HELD = 4  # every fourth wording is held out

_NAMES = (
    "Janet",
    "Tom",
    "Maria",
    "the farmer",
    "Alex",
    "the shop",
    "Priya",
    "Ben",
    "the school",
    "Lena",
    "Omar",
    "Kim",
)
_THINGS = (
    *("eggs", "apples", "books", "tickets", "miles", "dollars", "pages", "boxes", "students", "cookies", "hours"),
    *("marbles", "chairs", "bottles", "stamps", "cars", "flowers", "kilograms", "minutes", "pencils", "cards", "trees"),
)
# What a number stands for: as a noun, and as a clause. {t}: things; {w}: who.
_ROLES: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "total": (
        ("the total number of {t}", "the sum of all {t}", "the number of {t} in all", "the overall count of {t}"),
        ("how many {t} there are in total", "how many {t} there are altogether"),
    ),
    "left": (
        ("the number of {t} left", "the remaining {t}", "the number of {t} that remain", "what remains of the {t}"),
        ("how many {t} are left", "how many {t} remain"),
    ),
    "used": (
        ("the number of {t} used", "the {t} that {w} used", "the amount of {t} used up", "the count of used {t}"),
        ("how many {t} {w} used", "how many {t} were used up"),
    ),
    "cost": (
        ("the cost of the {t}", "the price of all {t}", "the amount paid for the {t}", "the money spent on {t}"),
        ("how much the {t} cost", "how much {w} pays for the {t}"),
    ),
    "daily": (
        ("the number of {t} per day", "the {t} for each day", "the daily number of {t}", "the {t} of one day"),
        ("how many {t} there are per day", "how many {t} {w} has each day"),
    ),
    "more": (
        ("the increase in {t}", "the additional {t}", "the number of extra {t}", "the number of {t} added"),
        ("how many more {t} there are", "how many {t} were added"),
    ),
    "share": (
        ("the {t} that each person gets", "each person's share of the {t}", "the {t} per person", "one share of {t}"),
        ("how many {t} each person gets", "how many {t} go to each person"),
    ),
}
_EXPRESSIONS = {
    "+": ("{a} + {b}", "{b} + {a}", "{a} plus {b}", "{b} plus {a}"),
    "-": ("{a} - {b}", "{a} minus {b}", "{a} - {b}", "{a} − {b}"),
    "*": ("{a} * {b}", "{b} \\times {a}", "{a} times {b}", "{b} × {a}"),
    "/": ("{a} / {b}", "{a} ÷ {b}", "{a} divided by {b}", "\\frac{{{a}}}{{{b}}}"),
    "%": ("{a}% of {b}", "{b} * {a}/100", "0.{a:02d} * {b}", "{a} percent of {b}"),
}
_DOING = {
    "+": ("adding {b} to {a}", "adding {a} and {b}", "putting {a} and {b} together", "summing {b} and {a}"),
    "-": ("subtracting {b} from {a}", "taking {b} away from {a}", "reducing {a} by {b}", "removing {b} from {a}"),
    "*": ("multiplying {a} by {b}", "multiplying {b} by {a}", "taking {a} times {b}", "the product of {a} and {b}"),
    "/": ("dividing {a} by {b}", "splitting {a} into {b}", "sharing {a} among {b}", "the quotient of {a} and {b}"),
    "%": ("taking {a}% of {b}", "finding {a} percent of {b}", "computing {a}% of {b}", "reading {a}% off {b}"),
}
# The same where the first operand is the result so far: steps leave out what stands just before them.
_ELLIPTIC = {
    "+": ("adding {b}", "increasing this by {b}", "adding another {b}", "putting {b} on top"),
    "-": ("subtracting {b}", "reducing this by {b}", "removing {b}", "taking away {b}"),
    "*": ("multiplying by {b}", "taking this {b} times", "multiplying this by {b}", "a factor of {b}"),
    "/": ("dividing by {b}", "splitting this into {b}", "dividing this by {b}", "sharing this among {b}"),
    "%": ("taking {a}%", "taking {a} percent of this", "finding {a}% of it", "computing {a}% of this"),
}
_WORDINGS: dict[str, tuple[str, ...]] = {
    "calculation": (
        "{x} = {c}",
        "{Noun} is {x} = {c}.",
        "{doing} gives {c}.",
        "{Noun}: {x} = {c}",
        "To find {noun}, we calculate {x} = {c}.",
        "{doing}, we get {x} = {c} for {noun}.",
        "{noun} equals {x}, which is {c}.",
        "We compute {clause}: {x} = {c}.",
        "{x} = {c}, so {noun} is {c}.",
        "Calculate {noun}:\n\\[ {x} = {c} \\]",
        "We have {x} = {c} as {noun}.",
        "{c} is {noun}, since {x} is {c}.",
        "{less} gives {c}.",
        "{less}, we have {c}.",
        "{doing} makes {c}.",
        "{less} brings us to {c}.",
    ),
    "value": (
        "{Noun} is {c}.",
        "We now know that {noun} is {c}.",
        "{Noun} = {c}",
        "That makes {c}, which is {noun}.",
        "This means {noun} equals {c}.",
        "There we are: {c} is {noun}.",
        "We have found {clause}: {c}.",
        "For {noun} we have {c}.",
    ),
    "given": (
        "{w} has {c} {t} at first.",
        "At the beginning there are {c} {t}.",
        "{w} starts with {c} {t}.",
        "We are told that {w} begins with {c} {t}.",
        "Initial {t}: {c}",
        "Given: {c} {t} at the start.",
    ),
    "plan": (
        "First, we need to find {clause}.",
        "Let's calculate {noun}.",
        "We start by working out {noun}.",
        "Determine {clause}:",
        "Find {noun}.",
        "To solve this, we have to know {clause}.",
        "Now we look for {noun}.",
        "The first thing to compute is {noun}.",
    ),
    "opening": (
        "Let's break this down step by step.",
        "To solve this problem, we need to follow these steps:",
        "Let us go through the problem one step at a time.",
        "We can solve this problem in a few small steps.",
        "Let's solve it step by step.",
        "Here is how to work through the problem:",
        "We will work this out in steps.",
        "Let's think about this carefully, step by step.",
    ),
    "unknown": (
        "x + {b} = {a}, so x = {c}.",
        "Subtracting {b} from both sides of x + {b} = {a} gives x = {c}.",
        "x = {a} - {b} = {c}",
        "Solving {b} + x = {a} for x, we obtain x = {a} - {b} = {c}.",
    ),
}
_FIRST = ("", "", "", "", "So ", "Then, ", "Next, ", "Therefore, ", "Thus ", "Now, ", "**Step 1:** ", "- ")
# How often the second step is made in which way
_CHANGES = {"same": 9, "number": 4, "result": 2, "operation": 2, "subject": 3, "fewer": 2, "conclude": 1, "other": 2}


class Claim(NamedTuple):
    """One thing that a step says: what kind of thing, of what (role, who, things), and its numbers a, b, c."""

    kind: str
    role: str
    who: str
    things: str
    operation: str
    numbers: tuple[int, int, int]

    @property
    def subject(self) -> tuple[str, str]:
        return self.role, self.things


class Pair(NamedTuple):
    """Two steps, and the labels (indices of `LABELS`) of "first, therefore second" and of the reverse."""

    first: str
    second: str
    forward: int
    backward: int

    @property
    def same(self) -> bool:
        return self.forward == self.backward == ENTAILMENT


def _part(all_: Sequence[str], held: bool) -> list[str]:
    """The wordings (or things) that are held out, or the others."""
    return [x for i, x in enumerate(all_) if (i % HELD == HELD - 1) == held]


def _numbers(operation: str, rng: Random) -> tuple[int, int, int]:
    """Operands and a result that is right nine times in ten: a step is to be read, not checked."""
    if operation == "%":
        a, b = rng.choice((5, 10, 15, 20, 25, 30, 40, 50, 60, 75)), 20 * rng.randint(1, 40)
    else:
        a, b = rng.randint(2, rng.choice((12, 60, 400))), rng.randint(2, rng.choice((12, 60)))
    if operation == "/":
        a *= b
    if operation == "-" and a < b:
        a, b = b, a
    return a, b, _result(operation, a, b) + (rng.choice((-10, -1, 1, 2, 10)) if rng.random() < 0.1 else 0)


def _result(operation: str, a: int, b: int) -> int:
    return {"+": a + b, "-": a - b, "*": a * b, "/": a // b, "%": a * b // 100}[operation]


def _claim(rng: Random, held: bool, kind: str | None = None) -> Claim:
    kinds = ("calculation",) * 5 + ("plan",) * 2 + ("value", "given", "opening", "unknown")
    kind = kind or rng.choice(kinds)
    operation = "-" if kind == "unknown" else rng.choice("+-*/%")
    role, who, things = rng.choice(list(_ROLES)), rng.choice(_NAMES), rng.choice(_part(_THINGS, held))
    return Claim(kind, role, who, things, operation, _numbers(operation, rng))


def say(claim: Claim, rng: Random, held: bool, named: bool = False) -> str:
    """`claim` in a random wording; `named`: one that tells what its numbers stand for."""
    wordings = _part(_WORDINGS[claim.kind], held)
    if named:
        wordings = [w for w in wordings if "oun}" in w or "{clause}" in w or "{t}" in w] or wordings
    a, b, c = claim.numbers
    nouns, clauses = _ROLES[claim.role]
    fill = {"t": claim.things, "w": claim.who}
    noun = rng.choice(_part(nouns, held)).format(**fill)
    clause = (clauses[1] if held else clauses[0]).format(**fill)
    x, doing, less = (
        rng.choice(_part(d[claim.operation], held)).format(a=a, b=b) for d in (_EXPRESSIONS, _DOING, _ELLIPTIC)
    )
    text = rng.choice(wordings).format(
        x=x, doing=doing, less=less, noun=noun, Noun=noun[0].upper() + noun[1:], clause=clause, a=a, b=b, c=c, **fill
    )
    first = "" if claim.kind == "opening" else rng.choice(_FIRST)
    return first + (text[0].lower() + text[1:] if first and first[-2] not in "*-" else text[0].upper() + text[1:])


def entails(one: Claim, other: Claim) -> bool:
    """Does the one claim say all that the other says? What is calculated has its result for a value."""
    if one.kind == other.kind == "opening":
        return True
    if one.kind in ("plan", "given", "value") and one.kind == other.kind:
        same = one.subject == other.subject if one.kind != "given" else one.things == other.things
        return same and (one.kind == "plan" or one.numbers[2] == other.numbers[2])
    if one.kind == "calculation" and other.kind == "value":
        return one.subject == other.subject and one.numbers[2] == other.numbers[2]
    if one.kind != other.kind:
        return False
    told = [(c.operation, sorted(c.numbers[:2]) if c.operation in "+*" else list(c.numbers[:2])) for c in (one, other)]
    alike = one.kind == "unknown" or one.subject == other.subject
    return alike and told[0] == told[1] and one.numbers[2] == other.numbers[2]


def _conflict(one: Claim, other: Claim) -> bool:
    """Do two claims give different numbers for one thing?"""
    if one.kind == other.kind == "unknown":
        return one.numbers != other.numbers
    counted = ("calculation", "value")
    about = (one.subject == other.subject and one.kind in counted and other.kind in counted) or (
        one.kind == other.kind == "given" and one.things == other.things
    )
    return about and not entails(one, other) and not entails(other, one)


def label(first: Sequence[Claim], second: Sequence[Claim]) -> int:
    """Whether a step of claims `first` entails, contradicts, or leaves open one of claims `second`."""
    if all(any(entails(f, s) for f in first) for s in second):
        return ENTAILMENT
    return CONTRADICTION if any(_conflict(f, s) for f in first for s in second) else NEUTRAL


def _change(claim: Claim, how: str, rng: Random, held: bool) -> Claim:
    a, b, c = claim.numbers
    if how == "number":
        numbers = _numbers(claim.operation, rng)
        near = (a, b + rng.choice((1, 2, 10)), c)
        return claim._replace(
            numbers=numbers if rng.random() < 0.5 else (*near[:2], _result(claim.operation, *near[:2]))
        )
    if how == "result":
        return claim._replace(numbers=(a, b, c + rng.choice((-10, -2, -1, 1, 2, 10, 100))))
    if how == "operation":
        new = rng.choice([o for o in "+-*" if o != claim.operation])
        return claim._replace(operation=new, numbers=(a, b, _result(new, a, b)))
    if how == "subject":
        role = rng.choice([r for r in _ROLES if r != claim.role])
        return claim._replace(
            role=role, things=rng.choice(_part(_THINGS, held)) if rng.random() < 0.5 else claim.things
        )
    if how == "conclude" and claim.kind == "calculation":
        return claim._replace(kind="value")
    return claim


def make(rng: Random, held: bool = False) -> Pair:
    """One random pair; with `held` from the wordings and things that are held out."""
    first = [_claim(rng, held)]
    if first[0].kind != "opening" and rng.random() < 0.25:
        first.append(_claim(rng, held, rng.choice(("calculation", "value", "given"))))
    how = rng.choices(list(_CHANGES), list(_CHANGES.values()))[0]
    second = list(first)
    if how == "other":
        second = [_claim(rng, held)]
    elif how == "fewer" and len(first) == 1:
        second.append(_claim(rng, held, "calculation"))
    elif how == "fewer":
        second.pop(rng.randrange(2))
    elif how != "same":
        at = rng.randrange(len(first))
        second[at] = _change(first[at], how, rng, held)
    if rng.random() < 0.5:
        first, second = second, first
    named = how in ("subject", "other", "conclude")
    texts = [" ".join(say(c, rng, held, named) for c in claims) for claims in (first, second)]
    return Pair(texts[0], texts[1], label(first, second), label(second, first))


def pairs(n: int, seed: int, held: bool = False) -> list[Pair]:
    """`n` random pairs of steps that differ in more than their dress; the same for the same arguments."""
    rng = Random(f"pairs/{seed}/{held}")
    found: list[Pair] = []
    while len(found) < n:
        pair = make(rng, held)
        if normalise(pair.first) != normalise(pair.second):
            found.append(pair)
    return found

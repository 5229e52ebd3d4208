"""Is the final answer of a text the gold answer?

Plain numbers are compared here, with their units; everything else by math-verify. Knows nothing of problems, models or
methods.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction

from semspec.problems.answer import ASIDE, MAX_COMPARED, final_answer
from semspec.problems.mathverify import WORKER

TIMEOUT = 5.0  # seconds of processor time for one comparison: a busy machine changes no verdict


@dataclass(frozen=True)
class Grade:
    """The verdict, and the answer that was found in the text (None: there was none)."""

    correct: bool
    answer: str | None


def grade(output: str, gold: str, timeout: float = TIMEOUT) -> Grade:
    """Grade a model's whole output against the gold answer. Never raises.

    timeout: seconds of processor time for the comparison (`mathverify.WALL` times that on the clock); past it, wrong.
    """
    answer = final_answer(output)
    if answer is None:
        return Grade(False, None)
    return Grade(equivalent(answer, gold, timeout), answer)


_PLAIN = re.compile(
    r"(?:(?P<name>[a-zA-Z]\w{0,3})\s*=\s*)?(?P<sign>[-+−]?)\s*[$€£]?\s*(?P<minus>[-−]?)"
    r"(?:(?P<whole>\d{1,40})?\s*\\frac\{(?P<up>-?\d{1,40})\}\{(?P<down>-?\d{1,40})\}"
    r"|(?P<over>\d{1,40})\s*/\s*(?P<under>\d{1,40})"
    r"|(?P<decimal>(?:\d{1,3}(?:(?:,\d{3})+|(?: \d{3})+)|\d{1,40})(?:\.\d{0,40})?"
    r"(?:[eE][+-]?\d{1,2}(?!\w))?|\.\d{1,40}))"
    r"\s*(?P<percent>%?)"
)
_SPACES = re.compile(r"(?<!\d) | (?!\d)")  # all but those between digits: 1 1/2 is not 11/2
_BASED = re.compile(r"([0-9A-Z]+) ?_ ?\{? ?(\d+) ?\}?")  # 1001_2: digits and their base
_WORD = r"[a-zA-Z][a-zA-Z.'’-]*(?:\s?\^\s?\{?\d\}?|[²³])?"
_MEASURED = re.compile(
    rf"(?P<value>.*?(?:[\d.)}}!%]|\\pi))(?P<gap>\s*)(?P<units>{_WORD}(?:(?:\s+|\s?/\s?){_WORD})*)", re.DOTALL
)
# What is counted ("18 eggs a day"), unlike a product of letters; and words that make another number or a formula.
_COUNTED = re.compile(r"(?=.*[aeiou])[a-zA-Z][a-z'’-]{2,}\.?|a|an|at|by|in|of|on|to")
_NO_UNIT = re.compile(
    r"\b(?:hundred|thousand|[mbtr]+illion|dozen|half|halves|(?:third|four?th|fifth|sixth|seventh|eighth|ninth|tenth"
    r"|hundredth|thousandth)s?|or|and|plus|minus|mod|squared|cubed|factorial|sin|cos|tan|cot|csc|log|ln|exp|sqrt"
    r"|pi|alpha|beta|theta|infinity)\b",
    re.IGNORECASE,
)
_POWERED = ("mm", "cm", "m", "km", "inch", "ft", "yd", "mile", "unit", "s")  # only these have squares and cubes
_SYNONYMS = """mm millimeter millimetre, cm centimeter centimetre, m meter metre, km kilometer kilometre, inch in,
    ft foot feet, yd yard, mile mi, unit, mg milligram, g gram, kg kilogram, lb pound, oz ounce, ton tonne,
    ml milliliter millilitre, l L liter litre, gal gallon, pt pint, qt quart, tbsp tablespoon, tsp teaspoon, ms, s sec
    second, min minute, h hr hour, day, wk week, month, yr year, dollar usd, cent, euro eur, degree deg, am, pm, mph,
    kph kmh kmph, rpm, hz, khz, mhz, ghz, kw, kwh, kj, pa, kpa, mpa, kb, mb, gb, tb, mol, square sq, cubic cu,
    nm, kn, ev, db, kv, mv, mw, gw, th st nd rd"""
_LETTERED = re.compile(r"\\(?:text|mathrm|mbox)\s*\{\s*([mgshlL])\s*\}(?=\s*(?:\^|$))")
_TEXT = re.compile(r"\\(?:text|mathrm|textbf|mathbf|textit|mbox|operatorname)\s*\{([^{}]*)\}")
_COMMAND = r"(?<!\\)\\"  # the backslash of `\,`, not the second one of `\\,`
_DRESSING = [
    (re.compile(rf"{_COMMAND}(?:(?:left|right|displaystyle|limits)(?![a-zA-Z])|!|(?=\$))"), ""),
    (re.compile(r"\\[dtc]frac(?![a-zA-Z])"), r"\\frac"),
    (re.compile(r"\\frac\s*(\d)\s*(\d)"), r"\\frac{\1}{\2}"),
    (re.compile(r"\\frac\s*(\d)\s*(?=\{)"), r"\\frac{\1}"),
    (re.compile(r"(\\frac\s*\{[^{}]*\})\s*(\d)"), r"\1{\2}"),
    (re.compile(r"(?<![\w./])(\d+)\s+(\d+)\s*/\s*(\d+)"), r"\1\\frac{\2}{\3}"),
    (re.compile(r"\{,\}"), ","),
    (re.compile(r"(?<=[\w)}])\*\*(?=[\w({])"), "^"),
    (re.compile(r"\*\*"), ""),
    (re.compile(r"\^\s*\{?\\circ\}?|\\degree|°"), ""),
    (re.compile(r"\\%|％"), "%"),
    (re.compile(rf"(?<=\d){_COMMAND},(?=\d{{3}})"), ","),
    (re.compile(rf"{_COMMAND}[,;: ]|~|^\\approx(?![a-zA-Z])|^≈"), " "),
    (re.compile(rf"{_COMMAND}[()\[\]]|\$(?!\s*[\d.])"), ""),
]


def _bare(text: str) -> str:
    """An answer without its dressing: delimiters, \\text, \\left, thin spaces, degrees, the full stop."""
    text = text.strip(" \t\r\n*_")
    for pattern, new in _DRESSING:
        text = pattern.sub(new, text)
    # A letter that is set as text is a unit; as a word it is none of a formula's letters.
    text = _LETTERED.sub(lambda match: f" {_LETTER_UNITS[match[1]]} ", text)
    text = re.sub(r"\s*\bpercent\b", "%", _TEXT.sub(r" \1 ", text))
    return ASIDE.sub("", " ".join(text.split())).rstrip(".").strip()


def _stem(word: str) -> str:
    """A word, its plural alike: apple and apples, box and boxes, penny and pennies."""
    return re.sub(r"(?<=\w\w)(?:ies|es|ys|(?<![su])s|e|y)$", "", word.casefold())


Measured = tuple[str, frozenset[str]]
_COMPOUND = {"mph": ("mile", "h"), "kph": ("km", "h")}  # 60 mph are 60 miles per hour
_LETTER_UNITS = {"m": "meter", "g": "gram", "s": "second", "h": "hour", "l": "liter", "L": "liter"}
_UNITS = {
    name if len(name) == 1 else _stem(name): names.split()[0]
    for names in _SYNONYMS.split(",")
    for name in names.split()
}


def _measured(text: str) -> Measured:
    """A value and its units, each by one name; all of `text` and no units when it ends in anything else.

    Next to the value, or after a formula, only the names of `_SYNONYMS` are units.
    """
    match = _MEASURED.fullmatch(text)
    if match is None or _NO_UNIT.search(match["units"]):
        return text, frozenset()
    units = re.sub(r"\s?\^\s?\{?(\d)\}?", r"^\1", match["units"].replace("²", "^2").replace("³", "^3"))
    counts = match["gap"] != "" and _plain(match["value"]) is not None
    if not counts and re.fullmatch(r"[a-zA-Z](?:[^\w/][^/]*)?", units):
        return text, frozenset()
    found: list[str] = []
    for word in re.split(r"\s*/\s*|\s+", units):
        if word in ("a", "an", "per"):  # "18 eggs a day"
            continue
        name, caret, power = word.partition("^")
        short = name.replace(".", "")
        unit = _UNITS.get(short if len(short) == 1 else _stem(short))
        if (unit not in _POWERED) if caret else (unit is None and not (counts and _COUNTED.fullmatch(name))):
            return text, frozenset()
        if unit in _POWERED and found[-1:] in (["square"], ["cubic"]):
            caret, power = "^", "3" if found.pop() == "cubic" else "2"
        found += _COMPOUND.get(unit or "", [(unit or _stem(short)) + caret + power])
    return match["value"], frozenset(found)


def _both_measured(bare_a: str, bare_b: str) -> tuple[Measured, Measured]:
    """Two answers by `_measured`; beside a dollar sign the other's "dollars" are no unit of its own."""
    pair = _measured(bare_a), _measured(bare_b)
    signs = ["$" in value[:3] for value, _ in pair]
    (a, units_a), (b, units_b) = pair
    return (a, units_a - {"dollar"} if signs[1] else units_a), (b, units_b - {"dollar"} if signs[0] else units_b)


def _other_units(a: frozenset[str], b: frozenset[str]) -> bool:
    """Do both name units, and different ones? More words of what is counted make no difference."""
    measures = {x for x in a ^ b if x.partition("^")[0] in _UNITS.values()}
    return bool(a and b and (measures or not (a <= b or b <= a)))


@dataclass(frozen=True)
class _Number:
    name: str | None
    value: Fraction
    percent: bool
    decimal: bool


def _plain(text: str) -> _Number | None:
    """The number that `text` is, perhaps with a name before it; None when it is anything else."""
    match = _PLAIN.fullmatch(text) if len(text) <= 200 else None
    if match is None:
        return None
    if match["decimal"] is not None:
        value = Fraction(re.sub("[, ]", "", match["decimal"]))
    else:
        over, under = int(match["up"] or match["over"]), int(match["down"] or match["under"])
        if under == 0:
            return None
        value = int(match["whole"] or 0) + Fraction(over, under)
    if (match["sign"] in ("-", "−")) != (match["minus"] != ""):
        value = -value
    return _Number(match["name"], value, match["percent"] != "", "." in (match["decimal"] or ""))


def _same_number(a: _Number, b: _Number) -> bool:
    """No two names, and equal values, to 6 digits; a percentage equals its number (15) and its share (0.15)."""
    if a.name and b.name and a.name != b.name:
        return False
    values = [(a.value, b.value)]
    if a.percent != b.percent:
        values.append((a.value / 100, b.value) if a.percent else (a.value, b.value / 100))
    tolerance = Fraction(1, 1_000_000) if a.decimal or b.decimal else Fraction(0)
    return any(abs(x - y) <= tolerance * min(Fraction(1), abs(y)) for x, y in values)


def _choice(text: str) -> str | None:
    """The letter of a multiple-choice answer such as "(B)", "B." or "B) 12"."""
    match = re.fullmatch(r"\(?([A-J])(?:[).:].*)?", text, re.DOTALL)
    return match.group(1) if match else None


def same_number(a: str, b: str) -> bool | None:
    """Are two answers the same number, in the same units where both name some? None where one is anything else."""
    if len(a) > MAX_COMPARED or len(b) > MAX_COMPARED:
        return None
    (value_a, units_a), (value_b, units_b) = _both_measured(_bare(a), _bare(b))
    number_a, number_b = _plain(value_a), _plain(value_b)
    if number_a is None or number_b is None:
        return None
    return not _other_units(units_a, units_b) and _same_number(number_a, number_b)


def equivalent(answer: str, gold: str, timeout: float = TIMEOUT) -> bool:
    """Do two final answers mean the same? Never raises; False when the comparison takes too long."""
    if len(answer) > MAX_COMPARED or len(gold) > MAX_COMPARED:
        return answer.strip() == gold.strip()
    bare, bare_gold = _bare(answer), _bare(gold)
    if _SPACES.sub("", bare) == _SPACES.sub("", bare_gold):
        return bool(bare_gold)
    based, based_gold = _BASED.fullmatch(bare), _BASED.fullmatch(bare_gold)
    if based and based_gold:  # math-verify drops the base
        return based.groups() == based_gold.groups()
    plain = same_number(answer, gold)
    if plain is not None:
        return plain
    (value, units), (value_gold, units_gold) = _both_measured(bare, bare_gold)
    if _other_units(units, units_gold):
        return False
    if re.fullmatch(r"\(?[A-J]\)?", bare_gold):
        return _choice(bare) == _choice(bare_gold)
    if re.fullmatch(r"[A-Za-z]{3,}(?:[ '-]+[A-Za-z]+)*", bare_gold):
        # math-verify reads a word as a product of letters, for which "east" is "seat".
        return bare.casefold() == bare_gold.casefold()
    # What looks like units may be a formula's letters.
    pairs = dict.fromkeys([(bare, bare_gold), (value, value_gold)])
    return any(WORKER.compare(*pair, timeout) for pair in pairs)

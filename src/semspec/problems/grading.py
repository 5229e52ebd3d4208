"""Is the final answer of a text the gold answer?

The answer is found by its form (a box, "####", "the answer is", else the last number). Plain numbers are
compared here, everything else by math-verify in a worker process that ends when a comparison takes too long:
math-verify's own time limit is a signal, which works in a program's main thread only. Knows nothing of
problems, models or methods.
"""

from __future__ import annotations

import atexit
import json
import math
import os
import re
import subprocess
import sys
import threading
import time
from collections import deque
from dataclasses import dataclass, replace
from fractions import Fraction

TIMEOUT = 5.0  # seconds of processor time for one comparison: a busy machine changes no verdict
WALL = 4.0  # times that limit on the clock: what ends a comparison where processor time can't be limited
START_TIMEOUT = 120.0  # seconds for the worker's imports
MAX_COMPARED = 500  # characters; a longer answer is right only if it is the gold answer to the letter
MEMORY = 4 << 30  # bytes of address space that the worker may take


@dataclass(frozen=True)
class Grade:
    """The verdict, and the answer that was found in the text (None: there was none)."""

    correct: bool
    answer: str | None


def grade(output: str, gold: str, timeout: float = TIMEOUT) -> Grade:
    """Grade a model's whole output against the gold answer. Never raises.

    timeout: seconds of processor time for the comparison (`WALL` times that on the clock); past it, wrong.
    """
    answer = final_answer(output)
    if answer is None:
        return Grade(False, None)
    return Grade(equivalent(answer, gold, timeout), answer)


# --- finding the answer ---

_BRACES = re.compile(r"\\(?:boxed|fbox)\s*\{|\\.|[{}]", re.DOTALL)
_BARE_BOX = re.compile(r"\\boxed\s*([^\s{}\\$.,;]+)")
# "#### 18", but not a heading over more text: "#### Step 2", "#### 2. The sum".
HASHES = r"(?<!#)####(?!#|[ \t*]{0,9}(?:[a-zA-Z]{2}|\d+[.:)][ \t])[^\n]{0,200}\n\s{0,99}\S)"
_STATED = re.compile(rf"{HASHES}[ \t]*|\banswer\W{{0,5}}(?:is\b(?!\s+not\b)|:|=)(?:\s*:)?", re.IGNORECASE)
_ASIDE = re.compile(r"\s\((?:[a-zA-Z]{4}|one|two|six|ten)[a-zA-Z ,'’-]*\)")  # "18 (eighteen)"
_FORMULA = re.compile(
    r"[\s*:]*(?:\$\$([^$]+)\$\$|\$(?!\s)([^$]*[^$\s])\$(?!\d)|\\\((.+?)\\\)|\\\[(.+?)\\\])", re.DOTALL
)
_NUMBER = r"(?:\d{1,3}(?:,\d{3})+(?!\d)|\d+)(?:\.\d+)?|\.\d+"
_SIGNED = r"(?<![\w.,)\]])-?\$?"  # "3-5" is a difference, "is -5" a negative number
_FRACTIONED = rf"(?:\d{{1,4}} (?=\d{{1,4}}/\d))?(?:{_NUMBER})(?:/\d+)?"  # 3, 1/2, 2 1/2
_LAST_NUMBER = re.compile(rf"(?:{_SIGNED})?{_FRACTIONED}(?:\\?%)?")
_FIRST_NUMBER = re.compile(rf"[^\d\n]{{0,40}}?(-?[$€£]?\s?{_FRACTIONED}(?:\s?\\?%)?)(?=[\s,;:!)*$]|\.(?!\d)|$)")


def final_answer(output: str) -> str | None:
    """The answer that a text ends in, as it is written there; None when it has none."""
    boxed = _last_box(output)
    if boxed is not None:
        return boxed
    stated = _last(_STATED, output)
    if stated is not None:
        answer = _statement(output[stated.end() : stated.end() + MAX_COMPARED])
        if answer:
            return answer
    number = _last(_LAST_NUMBER, output)
    return number.group() if number else None


def _last(pattern: re.Pattern[str], text: str) -> re.Match[str] | None:
    return next(iter(deque(pattern.finditer(text), maxlen=1)), None)


def boxes(output: str) -> list[tuple[int, int]]:
    """(start, end) of what each complete \\boxed{...} holds, as they close; empty ones don't count.

    In one pass, however the braces are (un)balanced. Without any, the last \\boxed with no braces.
    """
    found: list[tuple[int, int]] = []
    open_braces: list[int] = []  # where a box's content starts, or -1 for another brace
    for match in _BRACES.finditer(output):
        token = match.group()
        if token == "}":
            start = open_braces.pop() if open_braces else -1
            if start >= 0 and not output[start : match.start()].isspace() and start < match.start():
                found.append((start, match.start()))
        elif token == "{":
            open_braces.append(-1)
        elif token.endswith("{") and len(token) > 2:
            open_braces.append(match.end())
    bare = None if found else _last(_BARE_BOX, output)
    return found if bare is None else [bare.span(1)]


def _last_box(output: str) -> str | None:
    """What the last box holds."""
    for start, end in boxes(output)[-1:]:
        return re.sub(r"\\(?:boxed|fbox)\b\s*", "", output[start:end].strip())
    return None


def _statement(rest: str) -> str | None:
    """The answer in what follows "the answer is": its formula, else its first number, else the sentence."""
    formula = _FORMULA.match(rest)
    if formula:
        return next(g for g in formula.groups() if g is not None).strip()
    line = next((x for x in rest.split("\n") if x.strip(" \t\r*:")), "").strip(" \t\r*:_")
    line = _ASIDE.sub("", re.split(r"[.!?](?:\s|$)", line, maxsplit=1)[0]).strip(" *_")
    number = _FIRST_NUMBER.match(line)
    if number and not re.search(r"[=(\[{\\^+]", line):
        return number.group(1).strip()
    return line or None


# --- comparing ---

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
    return _ASIDE.sub("", " ".join(text.split())).rstrip(".").strip()


def _stem(word: str) -> str:
    """A word, its plural alike: apple and apples, box and boxes, penny and pennies."""
    return re.sub(r"(?<=\w\w)(?:ies|es|(?<![su])s|e|y)$", "", word.casefold())


_LETTER_UNITS = {"m": "meter", "g": "gram", "s": "second", "h": "hour", "l": "liter", "L": "liter"}
_UNITS = {
    name if len(name) == 1 else _stem(name): names.split()[0]
    for names in _SYNONYMS.split(",")
    for name in names.split()
}


def _measured(text: str) -> tuple[str, frozenset[str]]:
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
    for word in re.split(r"\s*/\s*|\s+per\s+|\s+", units):
        name, caret, power = word.partition("^")
        short = name.replace(".", "")
        unit = _UNITS.get(short if len(short) == 1 else _stem(short))
        if (unit not in _POWERED) if caret else (unit is None and not (counts and _COUNTED.fullmatch(name))):
            return text, frozenset()
        if unit in _POWERED and found[-1:] in (["square"], ["cubic"]):
            caret, power = "^", "3" if found.pop() == "cubic" else "2"
        found.append((unit or _stem(short)) + caret + power)
    return match["value"], frozenset(found)


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
    (value, units), (value_gold, units_gold) = _measured(bare), _measured(bare_gold)
    if _other_units(units, units_gold):
        return False
    number, number_gold = _plain(value), _plain(value_gold)
    if number is not None and number_gold is not None:
        return _same_number(number, number_gold)
    if re.fullmatch(r"\(?[A-J]\)?", bare_gold):
        return _choice(bare) == _choice(bare_gold)
    if re.fullmatch(r"[A-Za-z]{3,}(?:[ '-]+[A-Za-z]+)*", bare_gold):
        # math-verify reads a word as a product of letters, for which "east" is "seat".
        return bare.casefold() == bare_gold.casefold()
    # What looks like units may be a formula's letters.
    pairs = dict.fromkeys([(bare, bare_gold), (value, value_gold)])
    return any(_WORKER.compare(*pair, timeout) for pair in pairs)


# --- math-verify in a process of its own ---


class _Worker:
    """One process that compares answers, started at the first need and again after it had to end."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[str] | None = None
        self._owner = 0

    def compare(self, answer: str, gold: str, timeout: float) -> bool:
        """Math-verify's verdict; one caller at a time."""
        with self._lock:
            try:
                if self._process is None or self._owner != os.getpid() or self._process.poll() is not None:
                    self._start()
                return self._ask(json.dumps([answer, gold, timeout]), WALL * timeout) == "true"
            except (OSError, ValueError):
                self.stop()
                return False

    def _start(self) -> None:
        path = os.pathsep.join(p for p in sys.path if p)
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-c", "from semspec.problems.grading import serve; serve()"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"},
            encoding="utf-8",
        )
        self._owner = os.getpid()
        if not self._ask(None, START_TIMEOUT):
            raise OSError("the grading process does not start")

    def _ask(self, line: str | None, seconds: float) -> str:
        """Send a line, wait for one. After `seconds` the process is killed, and what comes back is empty."""
        process = self._process
        assert process is not None and process.stdin is not None and process.stdout is not None
        timer = threading.Timer(seconds, process.kill)
        timer.daemon = True
        timer.start()
        try:
            if line is not None:
                process.stdin.write(line + "\n")
                process.stdin.flush()
            reply = process.stdout.readline().strip()
        finally:
            timer.cancel()
        if not reply:
            self.stop()
        return reply

    def stop(self) -> None:
        """End the process, if it is this program's own and not a fork's copy."""
        process, self._process = self._process, None
        if process is not None and self._owner == os.getpid():
            process.kill()
            process.wait()
            for pipe in (process.stdin, process.stdout):
                try:
                    if pipe is not None:
                        pipe.close()
                except OSError:
                    pass  # what was still unsent has nowhere to go


_WORKER = _Worker()
atexit.register(_WORKER.stop)


def serve() -> None:
    """The worker: a JSON line [answer, gold, seconds] in, `true` or `false` out, until the input ends."""
    import faulthandler
    import logging

    # A watchdog of its own, so that it never outlives a parent that died by much.
    faulthandler.dump_traceback_later(START_TIMEOUT, exit=True)
    _limit("RLIMIT_AS", MEMORY)
    _limit("RLIMIT_CORE", 0)
    logging.disable(logging.CRITICAL)
    import math_verify

    # Units are gone where they are units: its own list has letters such as t and h, which a formula has too. LaTeX
    # alone, as its other reading of a text takes any number in it.
    latex = math_verify.LatexExtractionConfig()
    latex = replace(latex, normalization_config=replace(latex.normalization_config, units=False))
    replies, sys.stdout = sys.stdout, sys.stderr  # a library's print must not be taken for a verdict
    print("ready", file=replies, flush=True)
    faulthandler.cancel_dump_traceback_later()
    for line in sys.stdin:
        answer, gold, timeout = json.loads(line)
        faulthandler.dump_traceback_later(WALL * timeout + 1, exit=True)
        _limit("RLIMIT_CPU", math.ceil(time.process_time() + timeout))
        try:
            parsed = [math_verify.parse(f"${x}$", [latex], parsing_timeout=None) for x in (gold, answer)]
            same = all(parsed) and math_verify.verify(*parsed, timeout_seconds=None)
        except Exception:  # whatever a parser does with a model's text: it is not the gold answer
            same = False
        print(json.dumps(bool(same)), file=replies, flush=True)
        faulthandler.cancel_dump_traceback_later()


def _limit(name: str, most: int) -> None:
    """Have the system end this process past a limit, where the system can."""
    try:
        import resource

        which = getattr(resource, name)
        resource.setrlimit(which, (most, resource.getrlimit(which)[1]))
    except (ImportError, OSError, ValueError):
        pass

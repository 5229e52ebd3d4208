"""Where a text states its final answer: a box, "####", "the answer is", else the last number.

Knows nothing of what is right.
"""

from __future__ import annotations

import re
from collections import deque

MAX_COMPARED = 500  # characters; a longer answer is right only if it is the gold answer to the letter

_BRACES = re.compile(r"\\(?:boxed|fbox)\s*\{|\\.|[{}]", re.DOTALL)
_BARE_BOX = re.compile(r"\\boxed\s*([^\s{}\\$.,;]+)")
# "#### 18", but not a heading over more text: "#### Step 2", "#### 2. The sum".
HASHES = r"(?<!#)####(?!#|[ \t*]{0,9}(?:[a-zA-Z]{2}|\d+[.:)][ \t])[^\n]{0,200}\n\s{0,99}\S)"
_STATED = re.compile(rf"{HASHES}[ \t]*|\banswer\W{{0,5}}(?:is\b(?!\s+not\b)|:|=)(?:\s*:)?", re.IGNORECASE)
ASIDE = re.compile(r"\s\((?:[a-zA-Z]{4}|one|two|six|ten)[a-zA-Z ,'’-]*\)")  # "18 (eighteen)"
_FORMULA = re.compile(
    r"[\s*:]*(?:\$\$([^$]+)\$\$|\$(?!\s)([^$]*[^$\s])\$(?!\d)|\\\((.+?)\\\)|\\\[(.+?)\\\])", re.DOTALL
)
_NUMBER = r"(?:\d{1,3}(?:,\d{3})+(?!\d)|\d+)(?:\.\d+)?|\.\d+"
_SIGNED = r"(?<![\w.,)\]])-?\$?"  # "3-5" is a difference, "is -5" a negative number
_FRACTIONED = rf"(?:\d{{1,4}} (?=\d{{1,4}}/\d))?(?:{_NUMBER})(?:/\d+)?"  # 3, 1/2, 2 1/2
_LAST_NUMBER = re.compile(rf"(?:{_SIGNED})?{_FRACTIONED}(?:\\?%)?")
# what may stand around a number in a box that only lacks its brace: a currency's sign, a unit, the formula's end
_AROUND = re.compile(r"^\\?[$€£]\s*|\s*\\(?:text|mathrm|mbox)\s*\{[^{}]*\}?|\s*(?:\$|\\\)|\\\]|\.(?=\W*$))")
_FIRST_NUMBER = re.compile(rf"[^\d\n]{{0,40}}?(-?[$€£]?\s?{_FRACTIONED}(?:\s?\\?%)?)(?=[\s,;:!)*$]|\.(?!\d)|$)")


def final_answer(output: str) -> str | None:
    """The answer that a text ends in, as it is written there; None when it has none."""
    boxed = _last_box(output)
    if boxed is not None:
        return boxed
    if _cut(output):
        return None
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
    found, _ = _scan(output)
    bare = None if found else _last(_BARE_BOX, output)
    return found if bare is None else [bare.span(1)]


def _scan(output: str) -> tuple[list[tuple[int, int]], list[int]]:
    """The complete boxes, and where the content of each that is never closed starts."""
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
    return found, [start for start in open_braces if start >= 0]


def _cut(output: str) -> bool:
    """Does the text's end cut off a box that holds more than a number? Its last number would be another answer."""
    _, opened = _scan(output)
    inside = output[opened[-1] :].strip() if opened else ""
    if not inside or "\n" in inside or _STATED.search(inside):
        return False
    return not _LAST_NUMBER.fullmatch(_AROUND.sub("", inside))


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
    line = ASIDE.sub("", re.split(r"[.!?](?:\s|$)", line, maxsplit=1)[0]).strip(" *_")
    number = _FIRST_NUMBER.match(line)
    if number and not re.search(r"[=(\[{\\^+]", line):
        return number.group(1).strip()
    return line or None

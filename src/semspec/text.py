"""Cutting an answer into reasoning steps, the same way while a model writes and afterwards.

`Splitter.ends` is the only definition of where a step ends: an engine calls it after every token, and `split`
calls it at the possible places of a finished text. It sees plain text; it knows no tokenizer and no model.

A decision depends on the step so far and on the first three characters that follow. So it comes out the same
for every tokenizer that (like byte-level BPE) glues one space to the front of a word and has `$$` and `\\(`
as one token. `\\[` is often two tokens (`\\`, `[`): a backslash that starts the next text, other than `\\(`,
counts as the start of a display formula. With a tokenizer that cuts `$$` or `\\(` too, streaming may put a
formula into another step than `split` does; no text is ever lost.
"""

from __future__ import annotations

import re
from typing import Literal

from semspec.errors import UserError

_LATEX = re.compile(r"```|\$\$|\\\\|\\\[|\\\]")  # `\\` first: `\\[2pt]` is a line break, not a formula
_CLOSER = {"```": "```", "$$": "$$", "\\[": "\\]"}
_DISPLAY = re.compile(r"\\\[.*?\\\]|\$\$.*?\$\$", re.DOTALL)
# The next text leaves the white space, with at most the one character of it that is glued to what follows. A
# digit takes no space along: " 5" arrives as " ", "5".
_RESUMES = re.compile(r"\S| [^\s\d]|\t[^\W\d_]")
_FORMULA = re.compile(r"[ \t]?(?:\\(?!\()|\$\$)")

_LABEL = r"(?:step|part|case|question|problem|solution|answer)\b"
_HEADER = re.compile(
    r"#{1,6}\s.*"  # ### Step 1
    rf"|{_LABEL}\s*\d*\s*[:.)-]?"  # Step 2:
    rf"|{_LABEL}\s*\d+\s*[:.)-][^\d=.!?]*"  # Step 2: Find the cost
    r"|\(?(?:\d{1,3}|[a-z])[.)]",  # 3.
    re.IGNORECASE,
)
_BOLD = re.compile(
    r"(?:(?:[-*•]|\d{1,3}[.)])\s+)?(\*\*|__)"  # 1. **Find the cost**
    rf"(?:{_LABEL}\s*\d+.*|[^\d=]*[^\d=.!?])\1\s*[:.]?",
    re.IGNORECASE,
)

_SENTENCE = re.compile(r"[.?!…](?:\\\)|[\"'”’»)\]}*_$])*$")
_ABBREVIATION = re.compile(
    r"(?:^|[\s(\[\"'“])(?:e\.g|i\.e|mr|mrs|ms|dr|prof|vs|etc|cf|approx|fig|eq|st|jr|sr|resp|w\.r\.t)\.\W*$",
    re.IGNORECASE,
)
_LIST_NUMBER = re.compile(r"(?:^|\n)[ \t>*#_-]*\(?(?:\d{1,3}|[A-Za-z])\.[*_]*$")


def _inside(text: str) -> bool:
    """Is a display formula or a code fence still open at the end of `text`?"""
    closer = None
    for match in _LATEX.finditer(text):
        token = match.group()
        if closer is None:
            closer = _CLOSER.get(token)
        elif token == closer:
            closer = None
    return closer is not None


def _header(line: str) -> bool:
    line = line.strip()
    return not any(map(str.isalnum, line)) or bool(_HEADER.fullmatch(line) or _BOLD.fullmatch(line))


def _fragment(text: str) -> bool:
    """No step of its own: nothing readable, only a header, a lead-in that ends in a colon, a lone formula."""
    text = text.strip()
    if text.rstrip("*_ ").endswith(":"):
        return True
    if all(map(_header, text.splitlines())):
        return True
    return not any(map(str.isalnum, _DISPLAY.sub("", text)))


class Splitter:
    """Where reasoning steps end. `blank_line`: at an empty line; `sentence`: also after each sentence.

    A step keeps its delimiter. It never ends inside a display formula or a code fence; a fragment (header,
    lead-in, lone formula) goes to the step after it, and a display formula to the step before it.
    """

    __slots__ = ("_sentences",)

    def __init__(self, split: Literal["blank_line", "sentence"] = "blank_line") -> None:
        if split not in ("blank_line", "sentence"):
            raise UserError(f"unknown split '{split}'; use blank_line or sentence")
        self._sentences = split == "sentence"

    def ends(self, text: str, upcoming: str) -> bool:
        """Is `text`, which starts where the step starts, a complete step when `upcoming` follows?

        `upcoming` may be the next token's text alone, or all that follows; "" when nothing does. Cheap unless
        `text` ends in a delimiter. The space in front of the next word (" Then") belongs to the next step.
        """
        if not text or not self._delimited(text, upcoming):
            return False
        if upcoming and (not _RESUMES.match(upcoming) or _FORMULA.match(upcoming)):
            return False
        return not _inside(text) and not _fragment(text)

    def _delimited(self, text: str, upcoming: str) -> bool:
        if not self._sentences and not text[-1].isspace():
            return False
        body = text.rstrip()
        blank = text.count("\n", len(body))
        if blank >= 2:
            return True
        if not self._sentences or not (len(body) < len(text) or upcoming[:1].isspace()):
            return False
        tail = body[-16:]
        if not _SENTENCE.search(tail) or _ABBREVIATION.search(tail):
            return False
        return not _LIST_NUMBER.search(body[-64:])

    def split(self, text: str) -> list[str]:
        """The steps of a finished text; joined they are the text. What is left over is the last step."""
        steps, start = [], 0
        for i in range(1, len(text)):
            last = text[i - 1]
            possible = last.isspace() or (self._sentences and text[i].isspace() and not last.isalnum())
            if possible and self.ends(text[start:i], text[i : i + 3]):
                steps.append(text[start:i])
                start = i
        if start < len(text):
            steps.append(text[start:])
        return steps

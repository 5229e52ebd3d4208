"""Multiple choice: how a question shows its options, and which of them an answer names.

Options are shown in an order that a seed decides, since models like some letters better than others. An answer's last
stated letter counts, or an option's own words. Knows nothing of problem sets, models or methods.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import deque
from collections.abc import Iterator, Sequence

from semspec.problems.answer import HASHES, MAX_COMPARED, boxes
from semspec.problems.grading import TIMEOUT, Grade, equivalent

LETTERS = "ABCDEFGHIJ"
ASK = "Answer with the letter of the right option."
# Options that speak of other options stay where they are.
_REFERS = re.compile(
    r"\b(?i:none|all|both|neither|either|any|one|two|three)\s(?i:of\s(?:the\s)?(?:above|below|others?|these))\b"
    r"|(?:^\W*|\b(?i:both|neither|either|only|options?|answers?|choices?)\s)(?:\(?[A-J]\)?,?\s)+(?:and|or|nor)\s\(?[A-J]\b"
)


def shuffled(choices: Sequence[str], seed: int, problem_id: str, ordered: bool = True) -> str:
    """The order in which options are shown, as letters of their places in the source: "CAB" shows the third first.

    Follows from the seed and the problem's id alone. Options that name each other ("all of the above") keep theirs,
    unless they have none in the source (not `ordered`: the right one is always first).
    """
    places = range(len(choices))
    if ordered and any(_REFERS.search(choice) for choice in choices):
        return LETTERS[: len(choices)]
    keys = [hashlib.sha256(json.dumps([seed, problem_id, i]).encode()).digest() for i in places]
    return "".join(LETTERS[i] for i in sorted(places, key=keys.__getitem__))


def question_text(question: str, choices: Sequence[str]) -> str:
    """The question, an empty line, its options as "A) ..." a line, an empty line, and what to answer with."""
    options = "\n".join(f"{letter}) {choice}" for letter, choice in zip(LETTERS, choices, strict=False))
    return f"{question.rstrip()}\n\n{options}\n\n{ASK}"


def grade_choice(output: str, gold: str, choices: Sequence[str], timeout: float = TIMEOUT) -> Grade:
    """Grade a model's whole output against the gold letter; the found answer is a letter. Never raises.

    choices: the options' texts as they were shown. timeout: seconds for each comparison of values.
    """
    answer = chosen(output, choices, timeout)
    return Grade(answer is not None and answer == gold.strip().upper(), answer)


# What may stand around a letter: markdown, LaTeX, brackets, quotes.
_BEFORE = r"(?:[\s*_$:\"'“‘`(\[{]|\\[(\[]|\\(?:text|textbf|mathrm|mathbf)\b"
_BEFORE += r"|\b(?:option|choice|letter|therefore|thus|then|clearly|definitely|likely|most|indeed)\b){0,12}"
_STATED = re.compile(
    r"\b(?:answers?(?:\s+(?:choice|option|letter))?|(?:correct|right|best|final)\s+(?:option|choice|one|letter))"
    r"(?:\s+(?:here|to\s+(?:the|this)\s+\w+|for\s+(?:the|this)\s+\w+|among\s+\w+\s+\w+))?"
    r"[\s*_]{0,5}(?:\b(?:is|are|must\s+be|should\s+be|would\s+be|will\s+be)\b|[:=])|" + HASHES,
    re.IGNORECASE,
)
_SUBJECT = re.compile(
    r"(?<![\w'’\\])\(?([A-J])\)?[*_)]{0,4}(?:[ ]\([^()\n]{1,80}\))?\s{1,3}(?:is|must be|seems)\s{1,3}"
    r"(?:therefore\s|thus\s|then\s|indeed\s)?(?:clearly\s)?(?:the\s)?(?:only\s)?"
    r"(?:most\s(?:likely|accurate)\s)?(?:correct|right|best|true|answer)\b"
)
_NEGATED = re.compile(r"\b(?:neither|nor|or|not)\s\(?$", re.IGNORECASE)  # "neither A nor B is right"
_PICKED = re.compile(
    r"\b(?:choose|pick|select|go with|chose)\b(?:\s(?:us|only|just|with))*" + _BEFORE + r"([A-J])(?![\w'’])",
    re.IGNORECASE,
)
# "this leaves C." and "leaving (C) as the answer", but not "loss of bromide leaves C with a charge"
_LEFT = re.compile(
    r"\b(?:leaves|leaving)\b(?:\s(?:us|only|just|with))*"
    + _BEFORE
    + r"([A-J])(?=[*_$)\]}\"'”]{0,4}(?:[.!,;:\n]|\s*\Z|\s+as\s+(?:the|our)\b))",
    re.IGNORECASE,
)
_NAMED = re.compile(
    r"(?:\b(?:option|choice)\s*[*_(\[\"'“]{0,4}([A-J])|\*\*\s?\(?([A-J])\)?[.):]?\s?\*\*)(?![\w'’])"
    r"(?!\W{0,4}(?:is|was|are|can be|would be)\s+(?:not|n't|wrong|incorrect|false|out|eliminated|ruled|excluded)\b)"
    r"(?!\W{0,4}(?:isn['’]t|can(?:no|['’])t|fails|does(?:n['’]t| not))\b)",
    re.IGNORECASE,
)
_REJECTED = re.compile(
    r"\b(?:not|rules? out|ruled out|eliminat\w+|exclud\w+|reject\w+|unlike|than)\W{1,3}$", re.IGNORECASE
)
# "A and C" names no option, unlike "A, since C is wrong" or "A, I think".
_ANOTHER = (
    r"\s*(?:,|/|&|\band\b|\bor\b|,\s*(?:and|or)\b)\s*\(?[%s]\b(?!\)?\s+(?:is|isn['’]t|was|has|does|doesn['’]t|can"
    r"|would|am|fails|think|believe|guess)\b)"
)
_LONE = re.compile(
    r"(?:\b(?:thus|so|therefore|hence)\b,?)?[\s*_$\\(\[{\"'“#>-]{0,12}([A-J])[\s*_$\\)\]}\"'”.!]{0,12}",
    re.IGNORECASE,
)
_OPTION = re.compile(r"\W{0,4}[A-J][).:]\W{0,3}\s")  # a line such as "C) iron"


def chosen(output: str, choices: Sequence[str], timeout: float = TIMEOUT) -> str | None:
    """The letter of the option that an output names last; None when it names none, or two at once.

    A box, a statement ("The answer is", "B is correct") and a last line that is a lone letter or option come before
    mere mentions ("option B", "**B**"); an output without any of them may end in a sentence with one option's words.
    """
    letters = LETTERS[: len(choices)]
    words = [_words(choice) for choice in choices]
    stated = sorted(_statements(output, letters, words, choices, timeout), key=lambda found: found[0])
    if stated:
        return stated[-1][1]
    named = [
        letter
        for match in _NAMED.finditer(output)
        if (letter := (match[1] or match[2]).upper()) in letters
        and not _REJECTED.search(output[max(0, match.start() - 20) : match.start()])
    ]
    if named:
        return named[-1]
    return _mentioned(_last_line(output), letters, words)


def _statements(
    output: str, letters: str, words: Sequence[str], choices: Sequence[str], timeout: float
) -> Iterator[tuple[int, str | None]]:
    """(place, letter) of each statement of an answer; the letter is None where it names two options."""
    for start, end in boxes(output)[-1:]:
        letter = _content(output[start:end], letters, words) or _value(output[start:end], letters, choices, timeout)
        if letter:
            yield start, letter if letter != "?" else None
    for match in deque(_STATED.finditer(output), maxlen=50):
        rest = output[match.end() : match.end() + MAX_COMPARED]
        letter = _content(rest, letters, words)
        if letter:
            yield match.start(), letter if letter != "?" else None
    for pattern in (_SUBJECT, _PICKED, _LEFT):
        for match in pattern.finditer(output):
            start, end = match.span(1)
            two = _NEGATED.search(output[max(0, start - 10) : start]) or re.match(
                _ANOTHER % letters, output[end : end + 20]
            )
            if match[1] in letters and not two:
                yield match.start(), match[1]
    last = _last_line(output)
    lone = _LONE.fullmatch(last)
    place = len(output.rstrip()) - len(last)
    if lone and lone[1].upper() in letters:
        yield place, lone[1].upper()
    elif _OPTION.match(last) and last.strip()[-1:] not in "?:":
        found = _content(last, letters, words)
        if found and found in letters and _words(last).endswith(words[letters.index(found)]):
            yield place, found


def _content(text: str, letters: str, words: Sequence[str]) -> str | None:
    """The option that a box or the text after "the answer is" starts with; "?" for two options at once."""
    if len(text) > MAX_COMPARED:
        return None
    line = next((x for x in text.split("\n") if _words(x)), "")
    start = _words(line)
    by_words = [i for i, w in enumerate(words) if len(w) > 1 and (start == w or start.startswith(w + " "))]
    longest = [i for i in by_words if len(words[i]) == max(len(words[j]) for j in by_words)]
    match = re.match(rf"{_BEFORE}([{letters}])(?![\w'’])", line) or re.fullmatch(
        rf"{_BEFORE}([{letters}])[\s*_$\\)\]}}.,!]{{0,8}}", line, re.IGNORECASE
    )
    if match and re.match(r"\W{0,3}" + _ANOTHER % letters, line[match.end(1) :]):
        return "?"
    article = match is not None and match[1] == "A" and re.match(r"[ ][a-z]", line[match.end(1) :])
    if match and not (article and longest):
        return match[1].upper()
    return letters[longest[0]] if len(longest) == 1 else None


def _value(text: str, letters: str, choices: Sequence[str], timeout: float) -> str | None:
    """The only option whose value is that of a box with a number in it."""
    if not re.search(r"\d", text) or len(text) > 100:
        return None
    same = [letter for letter, c in zip(letters, choices, strict=False) if _same(text, c, timeout)]
    return same[0] if len(same) == 1 else None


def _same(text: str, choice: str, timeout: float) -> bool:
    return bool(re.search(r"\d", choice)) and equivalent(text, choice, timeout)


def _words(text: str) -> str:
    """A text's letters, digits and signs in lower case, without markdown, LaTeX dressing and punctuation."""
    text = re.sub(r"\\(?:text|textbf|mathrm|mathbf)(?![a-zA-Z])|\\[()\[\],;!]", " ", text)
    text = re.sub(r"(?<!\d)[.,](?!\d)|(?<=\d)[.,](?!\d)|[*_$`{}()\[\]:;!?\"'“”‘’]", " ", text)
    return " ".join(text.casefold().split())


def _last_line(output: str) -> str:
    """The last line with anything on it; "" when it is the end of a list of options."""
    before, _, last = output.rstrip()[-2 * MAX_COMPARED :].rpartition("\n")
    listed = _OPTION.match(last) and _OPTION.match(before.rstrip().rpartition("\n")[2])
    return "" if listed else last[-MAX_COMPARED:]


def _mentioned(line: str, letters: str, words: Sequence[str]) -> str | None:
    """The only option whose words a line holds; an option within another's words doesn't count."""
    text = f" {_words(line)} "
    held = [i for i, w in enumerate(words) if len(w) > 1 and f" {w} " in text]
    held = [i for i in held if not any(i != j and f" {words[i]} " in f" {words[j]} " for j in held)]
    return letters[held[0]] if len(held) == 1 else None

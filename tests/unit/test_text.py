"""Where reasoning steps end: by example, and streaming against offline by property."""

import re
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from semspec.errors import UserError
from semspec.text import Splitter

BLANK, SENTENCE = Splitter("blank_line"), Splitter("sentence")
# What byte-level BPE pre-tokenizers do: one space goes with a word or with punctuation, line ends are glued.
TOKEN = re.compile(
    r" ?\\\(|\\\)| ?\$\$|[^\r\nA-Za-z\d]?[A-Za-z]+|\d| ?(?:(?!\\\(|\\\)|\$\$)[^\sA-Za-z\d])+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def stream(splitter: Splitter, chunks: list[str]) -> list[str]:
    """The steps that a model writing these chunks would end."""
    steps, step = [], ""
    for chunk, upcoming in zip(chunks, [*chunks[1:], None], strict=False):
        step += chunk
        if upcoming is not None and splitter.ends(step, upcoming):
            steps.append(step)
            step = ""
    return [*steps, step] if step else steps


@pytest.mark.parametrize(
    ("text", "steps"),
    [
        ("We add.\n\nThen stop.", ["We add.\n\n", "Then stop."]),
        ("We add.\n \n\n\nThen stop.\n\n", ["We add.\n \n\n\n", "Then stop.\n\n"]),
        ("We add.\r\n\r\nThen stop.", ["We add.\r\n\r\n", "Then stop."]),
        ("One line\nand more\n\nB", ["One line\nand more\n\n", "B"]),
        (
            "**Step 1: Count 3 eggs**\n\nThere are 3.\n\nB",
            ["**Step 1: Count 3 eggs**\n\nThere are 3.\n\n", "B"],
        ),
        ("### Step 1\n\nThere are 3.\n\nB", ["### Step 1\n\nThere are 3.\n\n", "B"]),
        ("Step 2:\n\nAdd.\n\nB", ["Step 2:\n\nAdd.\n\n", "B"]),
        ("Step 2: Find the cost\n\nAdd.\n\nB", ["Step 2: Find the cost\n\nAdd.\n\n", "B"]),
        ("Step 2: The cost is 5.\n\nAdd.", ["Step 2: The cost is 5.\n\n", "Add."]),
        ("1. **Count the eggs:**\n\nAdd.\n\nB", ["1. **Count the eggs:**\n\nAdd.\n\n", "B"]),
        ("**The answer is 18.**\n\nDone.", ["**The answer is 18.**\n\n", "Done."]),
        ("We have:\n\n\\[ x = 1 \\]\n\nB", ["We have:\n\n\\[ x = 1 \\]\n\n", "B"]),
        ("We have it.\n\n\\[ x = 1 \\]\n\nB", ["We have it.\n\n\\[ x = 1 \\]\n\n", "B"]),
        ("We have it.\n\n   \\[ x = 1 \\]\n\nB", ["We have it.\n\n   \\[ x = 1 \\]\n\n", "B"]),
        ("We have it.\n\n$$ x = 1 $$\n\nB", ["We have it.\n\n$$ x = 1 $$\n\n", "B"]),
        ("We have it.\n\n$x$ is 1.\n\n\\(y\\) is 2.", ["We have it.\n\n", "$x$ is 1.\n\n", "\\(y\\) is 2."]),
        ("\\[ x = 1 \\]\n\nSo it is.\n\nB", ["\\[ x = 1 \\]\n\nSo it is.\n\n", "B"]),
        ("A is\n\\[ x\n\n= 1 \\\\[2pt]\n\n y \\]\n\nB", ["A is\n\\[ x\n\n= 1 \\\\[2pt]\n\n y \\]\n\n", "B"]),
        ("A is $$ x\n\n= 1 $$\n\nB", ["A is $$ x\n\n= 1 $$\n\n", "B"]),
        ("Run\n```\na = 1\n\nb = '$$'\n```\n\nB", ["Run\n```\na = 1\n\nb = '$$'\n```\n\n", "B"]),
        ("---\n\nAdd.\n\nB", ["---\n\nAdd.\n\n", "B"]),
        ("Add.\n\n   indented", ["Add.\n\n  ", " indented"]),
        ("Add.\n\nWe have:", ["Add.\n\n", "We have:"]),
        ("", []),
        ("\n\n", ["\n\n"]),
        ("A sentence. Another one.", ["A sentence. Another one."]),
    ],
)
def test_blank_line(text, steps):
    """A step ends at an empty line, unless it is a fragment or a formula or fence is open."""
    assert BLANK.split(text) == steps


@pytest.mark.parametrize(
    ("text", "steps"),
    [
        ("We add. Then stop.", ["We add.", " Then stop."]),
        ("Is it? Yes! Done", ["Is it?", " Yes!", " Done"]),
        ('He said "go." Then stop.', ['He said "go."', " Then stop."]),
        ("So it is \\(x = 5.\\) Then.", ["So it is \\(x = 5.\\)", " Then."]),
        ("It costs 3.5 dollars. Fine.", ["It costs 3.5 dollars.", " Fine."]),
        ("It costs 3. 5 more follow.", ["It costs 3. ", "5 more follow."]),
        ("1. We add. 2. We stop.", ["1. We add. ", "2. We stop."]),
        (
            "Use fruit, e.g. apples, vs. pears. Mr. Bo eats.",
            ["Use fruit, e.g. apples, vs. pears.", " Mr. Bo eats."],
        ),
        ("We add.\nThen stop.\n\nB", ["We add.\n", "Then stop.\n\n", "B"]),
        ("no full stop\nhere\n\nB", ["no full stop\nhere\n\n", "B"]),
        ("We add.\n\nThen stop.", ["We add.\n\n", "Then stop."]),
        ("It is so. \\[ x = 1. y \\] And on. B", ["It is so. \\[ x = 1. y \\] And on.", " B"]),
        ("**Step 1.** We add. B", ["**Step 1.** We add.", " B"]),
        ("Wait... Then stop.", ["Wait...", " Then stop."]),
    ],
)
def test_sentence(text, steps):
    """A step ends after a sentence or at an empty line."""
    assert SENTENCE.split(text) == steps


def test_upcoming_decides():
    """The same text is a step or not by what follows it."""
    assert BLANK.ends("We add.\n\n", "Then")
    assert BLANK.ends("We add.\n\n", " Then")
    assert BLANK.ends("We add.\n\n", "")
    assert not BLANK.ends("We add.\n\n", "\n")
    assert not BLANK.ends("We add.\n\n", "  ")
    assert not BLANK.ends("We add.\n\n", "\\[")
    assert not BLANK.ends("We add.\n\n", "\\")
    assert not BLANK.ends("We add.\n\n", " $$\n")
    assert BLANK.ends("We add.\n\n", "\\(")
    assert BLANK.ends("We add.\n\n", "$")
    assert not BLANK.ends("We add.\n", "Then")
    assert not BLANK.ends("", "Then")
    assert not SENTENCE.ends("It is 3.", "5")
    assert SENTENCE.ends("It is 3.", " So")


def test_unknown_split():
    """A wrong strategy is the user's mistake."""
    with pytest.raises(UserError, match="blank_line or sentence"):
        Splitter("paragraph")  # type: ignore[arg-type]


WORDS = ["We add", " 3.5", " 12", "5", " eggs", ".", "?", ":", ' "so"', ".)", "- ", "**", "1. ", "e.g. "]
GAPS = ["\n", "\n\n", "\n\n\n", " \n\n", "\r\n\r\n", "  ", " ", "   ", "\t"]
MARKS = ["\\[", " \\[", "\\]", "$$", " $$", "\\(x\\)", " \\(", "$x$", "```", "\\boxed{5}", "\\\\[2pt]"]
PIECES = st.sampled_from([*WORDS, *GAPS, *MARKS, "**Step 1: Go**", "### Two"])


@pytest.mark.parametrize("splitter", [BLANK, SENTENCE], ids=["blank_line", "sentence"])
@settings(max_examples=200, deadline=None)
@given(pieces=st.lists(PIECES, max_size=25), cuts=st.data())
def test_streaming_equals_offline(splitter, pieces, cuts):
    """Token by token or at once: the same steps, and joined they are the text."""
    text = "".join(pieces)
    chunks = []
    for token in TOKEN.findall(text):  # BPE may cut a word or a gap further, but no space off its word
        if (token.isspace() or token.isalnum()) and len(token) > 1 and cuts.draw(st.booleans()):
            at = cuts.draw(st.integers(1, len(token) - 1))
            chunks += [token[:at], token[at:]]
        else:
            chunks.append(token)
    assert "".join(chunks) == text
    offline = splitter.split(text)
    assert "".join(offline) == text
    assert all(offline)
    assert stream(splitter, chunks) == offline


def test_long_text_is_fast():
    """An open formula in a long answer does not make cutting quadratic enough to notice."""
    text = "\\[ open\n\n" + "Some words of a line. More.\n\n" * 500
    start = time.process_time()
    assert SENTENCE.split(text) == [text]
    assert time.process_time() - start < 2

"""One plain spelling for a reasoning step: no step label, no Markdown, no LaTeX dressing, one sign per
operation.

Two steps that differ only in dress become the same string here. This module rewrites characters; it does not
know what the mathematics says (that is `gate`) nor what the words mean (that is `entailment`). Every pass is
a regular expression without nested repetition, so time grows linearly with the text.
"""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache

_PASSES = 8  # nesting depth of braces that is unfolded; deeper ones lose their braces

_SIGNS = str.maketrans(
    {
        **dict.fromkeys("×·∙⋅✕✖∗", "*"),
        **dict.fromkeys("÷∕⁄", "/"),
        **dict.fromkeys("−–—‐‑‒", "-"),
        **dict.fromkeys("≈≅≃∼", "≈"),
        **dict.fromkeys("‘’ʼ", "'"),
        **dict.fromkeys("“”", '"'),
        **{c: f"^{d}" for d, c in enumerate("⁰¹²³⁴⁵⁶⁷⁸⁹")},
        **dict.fromkeys("£€¥", ""),
        "°": " degrees ",
        "≤": "<=",
        "≥": ">=",
        "≠": "!=",
        "√": " sqrt ",
        "`": "",
    }
)
_COMMANDS = {
    **dict.fromkeys(("times", "cdot", "ast", "bullet"), "*"),
    "div": "/",
    **dict.fromkeys(("approx", "simeq", "cong", "sim"), "≈"),
    **dict.fromkeys(("le", "leq", "leqslant"), "<="),
    **dict.fromkeys(("ge", "geq", "geqslant"), ">="),
    **dict.fromkeys(("ne", "neq"), "!="),
    **dict.fromkeys(("lt",), "<"),
    **dict.fromkeys(("gt",), ">"),
    **dict.fromkeys(("degree", "circ"), " degrees "),
    **dict.fromkeys(("ldots", "dots", "cdots"), "..."),
    **dict.fromkeys(("left", "right", "big", "bigl", "bigr", "Big", "Bigl", "Bigr", "bigg", "Bigg"), " "),
    **dict.fromkeys(("displaystyle", "textstyle", "quad", "qquad", "limits", "hline"), " "),
}

_BOLD = re.compile(r"(?<=\d)\*\*(?=\d)")
_ENVIRONMENT = re.compile(r"\\(?:begin|end)\{[^{}]*\}")
_DRESS = re.compile(
    r"\\(?:text|textbf|textit|textrm|mathrm|mathbf|mathit|operatorname|mbox|boxed|fbox|underline)\s*\{([^{}]*)\}"
)
_FRAC = re.compile(r"\\[dtc]?frac\s*\{([^{}]*)\}\s*\{([^{}]*)\}")
_FRAC_DIGITS = re.compile(r"\\[dtc]?frac\s*(\d)\s*(\d)")
_SQRT = re.compile(r"\\sqrt\s*\{([^{}]*)\}")
_SCRIPT = re.compile(r"([\^_])\{([^{}]*)\}")
_COMMAND = re.compile(r"\\([A-Za-z]+)")
_ESCAPE = re.compile(r"\\[^A-Za-z%&$#_{}]")
_THOUSANDS = re.compile(r"(?<![\d.,])\d{1,3}(?:,\d{3})+(?!\d)")
# "(1)" in front of an operator is a number in brackets, not the label of an item
_LABEL = re.compile(
    r"^[ \t]*(?:[>#•*-]+[ \t]+)*"
    r"(?:(?:step[ \t]*\d+\b[ \t]*[:.)-]*|\d{1,2}[.)](?=[ \t]+\S)|\([a-z\d]\)(?=[ \t]+[^\s+*/=^<>-]))[ \t]*){0,2}",
    re.IGNORECASE | re.MULTILINE,
)
_DOLLARS = re.compile(r"(?<=\d) ?(?:us )?dollars?\b")
_PERCENT = re.compile(r" ?(?:\bpercent\b|\bper cent\b|%)")
_TIMES_X = re.compile(r"(?<=\d) ?x ?(?=\d)")
_TIGHT = re.compile(r" ?([+*/=^<>≈]) ?")
_FRONT = re.compile(r"^(?:[ :;,]|\.(?!\d))+")  # the point of .5 stays
_MINUS = re.compile(r"(?<=[\d)%]) ?- ?(?=[\d(])")


def _script(match: re.Match[str]) -> str:
    mark, inner = match[1], match[2].strip()
    return f"{mark}{inner}" if len(inner) == 1 else f"{mark}({inner})"


def _unfold(text: str) -> str:
    """Braces of known commands, innermost first."""
    for _ in range(_PASSES):
        before = text
        text = _DRESS.sub(r" \1 ", text)
        text = _SCRIPT.sub(_script, text)
        text = _FRAC.sub(r"(\1)/(\2)", text)
        text = _SQRT.sub(r"sqrt(\1)", text)
        if text == before:
            break
    return text


@lru_cache(maxsize=1 << 14)
def normalise(step: str) -> str:
    """`step` without labels and dressing, lower case, white space collapsed; may be empty. Never raises."""
    text = unicodedata.normalize("NFKC", step.translate(_SIGNS)).translate(_SIGNS)
    text = _BOLD.sub("^", text).replace("**", "").replace("__", "")
    text = _LABEL.sub("", text)
    if "\\" in text or "{" in text:
        text = text.replace("{,}", ",").replace("\\\\", "\n").replace("\\!", "")
        text = _ENVIRONMENT.sub(" ", text).replace("^\\circ", " degrees ").replace("^{\\circ}", " degrees ")
        text = _FRAC_DIGITS.sub(r"(\1)/(\2)", text)
        text = _unfold(text)
        text = _COMMAND.sub(lambda m: _COMMANDS.get(m[1], f" {m[1]} "), text)
        text = _ESCAPE.sub(" ", text).replace("\\", "")
        text = text.replace("{", " ").replace("}", " ").replace("&", " ")
    text = _THOUSANDS.sub(lambda m: m[0].replace(",", ""), text.replace("$", ""))
    text = " ".join(text.lower().split())
    text = _PERCENT.sub("%", _DOLLARS.sub("", text))
    text = _TIMES_X.sub("*", text)
    text = _MINUS.sub("-", _TIGHT.sub(r"\1", text))
    return _FRONT.sub("", text.rstrip(" .:;,"))

"""Numbers, expressions and equations in the text of a reasoning step, by value.

Reads normalised text, skips the words and units between operands, and evaluates with exact rational
arithmetic of bounded size. A variable is evaluated at one fixed point per name, so two symbolic expressions
are equal when their values are (Schwartz-Zippel); nothing is simplified symbolically. It does not know that
steps are compared.
"""

from __future__ import annotations

import hashlib
import math
import re
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import pairwise
from typing import Literal, NamedTuple

MAX_DIGITS = 40  # a longer literal is an opaque symbol
MAX_BITS = 2048  # of an intermediate result; beyond it the expression has no value
MAX_TOKENS = 200  # of one side of an equation


_FUNCTIONS = frozenset(("sqrt", "sin", "cos", "tan", "log", "ln", "exp"))
_GREEK = frozenset(("pi", "alpha", "beta", "gamma", "theta", "phi", "lambda", "mu", "sigma", "omega"))
_UNITS = frozenset("gmlhskcft")
_REACH = frozenset(("have", "get", "obtain", "reach", "at"))

_REWRITES = [
    (re.compile(r"\bstep \d+\b"), " "),
    (re.compile(r"(?<=[\d)%]) plus (?=[\d(])"), "+"),
    (re.compile(r"(?<=[\d)%]) minus (?=[\d(])"), "-"),
    (re.compile(r"(?<=[\d)%]) (?:times|multiplied by) (?=[\d(])"), "*"),
    (re.compile(r"(?<=[\d)%]) divided by (?=[\d(])"), "/"),
    (re.compile(r"(?<=%) of (?=[\d(])"), "*"),
    (re.compile(r"(?<=[-+*/])([\d.]+) (?:is|gives|makes|yields|leaves) (?=\d)"), r"\1="),
    (re.compile(r" (?:is equal to|equals|which is equal to) (?=[-\d(])"), "="),
    (re.compile(r"/ ?(?=[a-z]{2})(?!sqrt|pi\b|sin|cos|tan|log|ln)"), " "),  # 25/month: a unit, no division
    (re.compile(r"(?<=[a-z]{2})-(?=\w)|(?<=\d)-(?=[a-z]{2})"), " "),  # five-pound, 5-pound
    (re.compile(r"\((-?[\d.]+)\)/\(([\d.]+)\)"), r"(\1/\2)"),
    (re.compile(r"->|=>|-{2,}|={3,}|\.{2,}"), " ; "),
]
_TOKEN = re.compile(
    r"(?P<ordinal>\d+(?:st|nd|rd|th)\b)"
    r"|(?P<number>\d+(?:\.\d+)?|\.\d+)(?P<percent>%)?(?P<cents> ?(?:cents?\b|¢))?"
    r"|(?P<word>[a-z](?:_\(?[a-z0-9]+\)?)?(?![a-z'])|[^\W\d_][^\W\d_]*(?:'[a-z]*)?)"
    r"|(?P<relation><=|>=|!=|[=≈<>])"
    r"|(?P<op>[-+*/^])"
    r"|(?P<left>[(\[])|(?P<right>[)\]])"
    r"|(?P<stop>[.,;:!?])"
)


class Quantity(NamedTuple):
    """A literal number: its value, and how many decimals it was written with (None: exact)."""

    value: Fraction
    decimals: int | None = None


Item = tuple[Quantity, ...]  # (number,), or (a, b, value) where a and b together say the same as the value


class Token(NamedTuple):
    kind: Literal["number", "variable", "function", "op", "left", "right", "relation", "word", "stop"]
    text: str
    quantity: Quantity | None = None
    glued: bool = False  # no white space before it
    spaced: bool = False  # white space after it


@dataclass
class Side:
    """One side of an equation, or a free expression."""

    tokens: list[Token] = field(default_factory=list)
    gap: bool = False  # words since the last token

    def add(self, token: Token) -> None:
        self.tokens.append(token)
        self.gap = False


@dataclass(frozen=True)
class Chain:
    """lhs = ... = rhs: the sides' values, the relations between them, what it is made of."""

    values: tuple[Fraction | None, ...]
    relations: tuple[str, ...]
    named: tuple[str, ...]  # of a side that is one variable, its name; else ""
    result: Quantity  # the last side's value; a lone variable only counts where there is nothing else
    numbers: tuple[Item, ...]
    operators: frozenset[str]
    sound: bool  # all sides without variables have one value, up to rounding
    false: bool  # two of them have different values
    variables: frozenset[str]


def _point(name: str) -> Fraction:
    """The fixed value at which a variable or an opaque thing is evaluated."""
    return Fraction(int.from_bytes(hashlib.sha256(name.encode()).digest()[:4], "big") | 1)


def _literal(text: str) -> Quantity:
    if len(text) > MAX_DIGITS:
        return Quantity(_point(text))
    decimals = len(text.partition(".")[2])
    significant = len(text.replace(".", "").lstrip("0"))
    return Quantity(Fraction(text), decimals if decimals and significant >= 3 else None)


def tokenise(text: str) -> list[Token]:
    """Tokens of a normalised step; characters that mean nothing here are left out."""
    for pattern, replacement in _REWRITES:
        text = pattern.sub(replacement, text)
    return _tokens(text)


def _tokens(text: str) -> list[Token]:
    out: list[Token] = []
    end = 0
    for m in _TOKEN.finditer(text):
        glued, spaced = m.start() == end and end > 0, text[m.end() : m.end() + 1] == " "
        end = m.end()
        kind, s = m.lastgroup, m[0]
        if m["number"]:
            q = _literal(m["number"])
            if m["percent"]:
                q = Quantity(q.value / 100, None if q.decimals is None else q.decimals + 2)
            out.append(Token("number", "¢" if m["cents"] else s, q, glued, spaced))
        elif kind == "word":
            variable = s in _GREEK or (len(s) == 1 and s.isascii()) or "_" in s
            name = "function" if s in _FUNCTIONS else "variable" if variable else "word"
            out.append(Token(name, s, None, glued, spaced))  # type: ignore[arg-type]
        elif kind == "ordinal":
            out.append(Token("word", s))
        else:
            out.append(Token(kind, s, None, glued, spaced))  # type: ignore[arg-type]
    return out


def _is_variable(tokens: list[Token], i: int) -> bool:
    """Is the single letter at `i` mathematics ("2x", "x =") or prose ("a total")?"""
    t = tokens[i]
    before = tokens[i - 1] if i else None
    after = tokens[i + 1] if i + 1 < len(tokens) else None
    if t.glued and before and before.kind in ("number", "right", "op", "relation", "left", "variable"):
        return not (t.text == "a" and t.spaced)
    if after and not t.spaced and after.kind in ("op", "relation", "right", "left", "variable", "number"):
        return True
    return bool(before and before.kind in ("op", "relation") and t.text not in "ai")


def _power(base: Fraction, exponent: Fraction) -> Fraction | None:
    if exponent.denominator != 1 or abs(exponent) > 64:
        return _point(f"{hash(base)}^{hash(exponent)}")
    bits = max(base.numerator.bit_length(), base.denominator.bit_length()) * abs(exponent.numerator)
    if bits > MAX_BITS or (base == 0 and exponent < 0):
        return None
    return base ** int(exponent)


def _function(name: str, x: Fraction) -> Fraction:
    if name == "sqrt" and x >= 0:
        root = Fraction(math.isqrt(x.numerator), math.isqrt(x.denominator))
        if root * root == x:
            return root
    return _point(f"{name} {x}")


def _apply(values: list[Fraction], op: str) -> bool:
    """Apply `op` to the top of the stack; False when it has no (bounded) value."""
    if op == "neg":
        values[-1] = -values[-1]
        return True
    if op in _FUNCTIONS:
        values[-1] = _function(op, values[-1])
        return True
    b, a = values.pop(), values.pop()
    if op == "/" and b == 0:
        return False
    result = a + b if op == "+" else a - b if op == "-" else a * b if op == "*" else None
    if op == "/":
        result = a / b
    if op == "^":
        result = _power(a, b)
    if result is None or max(result.numerator.bit_length(), result.denominator.bit_length()) > MAX_BITS:
        return False
    values.append(result)
    return True


_RANK = {"+": 1, "-": 1, "*": 2, "/": 2, "neg": 3, "^": 4}


def evaluate(tokens: list[Token]) -> Fraction | None:
    """Value of an expression (shunting-yard), or None when it is none or too large. Unmatched parentheses are
    ignored.
    """
    if not tokens or len(tokens) > MAX_TOKENS:
        return None
    values: list[Fraction] = []
    ops: list[str] = []

    def unwind(rank: int) -> bool:
        while ops and ops[-1] != "(" and _RANK.get(ops[-1], 5) >= rank:
            op = ops.pop()
            if len(values) < (1 if op == "neg" or op in _FUNCTIONS else 2) or not _apply(values, op):
                return False
        return True

    operand = False  # the previous token closed an operand
    for t in tokens:
        if t.kind in ("number", "variable", "left", "function"):
            if operand:
                if not unwind(2):
                    return None
                ops.append("*")
            operand = t.kind in ("number", "variable")
            if t.kind == "number" and t.quantity:
                values.append(t.quantity.value)
            elif t.kind == "variable":
                values.append(_point(t.text))
            else:
                ops.append("(" if t.kind == "left" else t.text)
        elif t.kind == "right":
            if not operand or "(" not in ops:
                continue
            if not unwind(0):
                return None
            ops.pop()
        elif operand:
            if not unwind(_RANK[t.text] + (t.text == "^")):
                return None
            ops.append(t.text)
            operand = False
        elif t.text == "-":
            ops.append("neg")
        elif t.text != "+":
            return None
    if not operand:
        return None
    ops = [o for o in ops if o != "("]
    return values[0] if unwind(0) and not ops and len(values) == 1 else None


def whole_value(text: str) -> Fraction | None:
    """Value of a normalised text that is one expression and nothing else; None of any other."""
    tokens = _tokens(text)
    parts = {"number", "variable", "function", "op", "left", "right"}
    if not parts.issuperset(t.kind for t in tokens) or _TOKEN.sub("", text).strip():
        return None
    if any(b.kind == "number" and a.kind in ("number", "variable", "right") for a, b in pairwise(tokens)):
        return None  # "3 4" is no product
    return evaluate(tokens)


def _trim(tokens: list[Token]) -> list[Token]:
    """Without operators that lost an operand to a word, and without empty parentheses."""
    out: list[Token] = []
    for t in tokens:
        if t.kind == "right" and out and out[-1].kind == "left":
            out.pop()
            continue
        if t.kind == "op" and out and out[-1].kind == "op" and t.text != "-":
            out.pop()
        if t.kind == "op" and t.text not in "+-" and (not out or out[-1].kind == "left"):
            continue
        out.append(t)
    while out and out[-1].kind in ("op", "left", "function"):
        out.pop()
    return out


def _negative(tokens: list[Token], i: int) -> bool:
    """Is the number at `i` behind a minus that is a sign, no subtraction, no dash of the prose?"""
    minus, before = tokens[i - 1], tokens[i - 2] if i > 1 else None
    if minus.kind != "op" or minus.text != "-":
        return False
    if before is None or before.kind in ("left", "op", "relation", "stop"):
        return True
    return before.kind == "word" and tokens[i].glued and not minus.glued


def numbers(tokens: list[Token]) -> list[Item]:
    """Literal numbers of a token run; `a / b` is one item (a, b, a/b), `16 - 3` two, `-3` is negative, 50
    cents also .5.
    """
    out: list[Item] = []
    for i, t in enumerate(tokens):
        if t.quantity is None:
            continue
        q = t.quantity
        if i and _negative(tokens, i):
            q = Quantity(-q.value, q.decimals)
        ratio = i > 1 and tokens[i - 1].text == "/" and tokens[i - 2].quantity is not None
        if ratio and out and len(out[-1]) == 1 and q.value:
            top = out.pop()[0]
            out.append((top, q, Quantity(top.value / q.value)))
        elif t.text == "¢":
            out.append((q, q, Quantity(q.value / 100)))
        else:
            out.append((q,))
    return out


def stated(tokens: list[Token]) -> list[Quantity]:
    """Numbers that a step says are reached ("so we have 14"), outside any equation."""
    out = []
    for i, t in enumerate(tokens):
        before = [w.text for w in tokens[max(0, i - 3) : i]]
        after = tokens[i + 1].kind if i + 1 < len(tokens) else "stop"
        reached = "we" in before[:-1] and before[-1] in _REACH
        if t.quantity and reached and after not in ("op", "relation"):
            out.append(t.quantity)
    return out


def equations(tokens: list[Token]) -> list[Chain]:
    """The equations of a step, left to right. Words inside an expression (units) are skipped; between two
    operands they end it.
    """
    chains: list[Chain] = []
    sides, relations = [Side()], list[str]()

    def close() -> None:
        nonlocal sides, relations
        if relations:
            chain = _chain([_trim(s.tokens) for s in sides], relations)
            if chain:
                chains.append(chain)
        sides, relations = [Side()], []

    for i, t in enumerate(tokens):
        side = sides[-1]
        if t.kind == "stop":
            close()
        elif t.kind == "relation":
            sides.append(Side())
            relations.append(t.text)
        elif t.kind == "word" or (t.kind == "variable" and not _is_variable(tokens, i)):
            side.gap = True
        elif t.kind in ("op", "right"):
            if side.tokens or t.text == "-":
                side.add(t)
        else:
            last = side.tokens[-1] if side.tokens else None
            joined = last is None or last.kind in ("op", "left", "function")
            implicit = not side.gap and not joined and t.kind != "number" and (t.glued or t.kind == "left")
            if not joined and not implicit:
                close()
                side = sides[-1]
            side.add(t)
    close()
    return chains


def _parts(item: Item, result: Fraction) -> list[Item]:
    """In 60 / 1.5 = 40 the ratio is the result, so it cannot stand for its parts."""
    return [(q,) for q in item[:2]] if len(item) == 3 and item[2].value == result else [item]


def _without_unit(sides: list[list[Token]]) -> list[list[Token]]:
    """500 - 130 = 370g: a letter after the result of plain arithmetic is a unit, no variable."""
    plain = any(len(s) > 2 and all(t.kind != "variable" for t in s) for s in sides)
    last = sides[-1]
    if plain and len(last) == 2 and last[0].kind == "number" and last[1].text in _UNITS:
        return [*sides[:-1], last[:1]]
    return sides


def _chain(sides: list[list[Token]], relations: list[str]) -> Chain | None:
    sides = _without_unit(sides)
    values = tuple(evaluate(s) for s in sides)
    named = tuple(s[0].text if len(s) == 1 and s[0].kind == "variable" else "" for s in sides)
    known = [(i, v) for i, v in enumerate(values) if v is not None]
    if not known:
        return None
    at, value = ([(i, v) for i, v in known if not named[i]] or known)[-1]
    single = sides[at][0].quantity if len(sides[at]) == 1 else None
    flat = [t for s in sides for t in s]
    symbolic = [any(t.kind == "variable" for t in s) for s in sides]
    plain = [v for i, v in known if not symbolic[i]]
    sound = len(plain) > 1 and all(abs(v - value) <= abs(value) / 100 for v in plain)
    operators = {t.text for s in sides for i, t in enumerate(s) if t.kind == "op" and i}
    return Chain(
        values=values,
        relations=tuple(relations),
        named=named,
        result=Quantity(value, single.decimals if single else None),
        numbers=tuple(part for s in sides for item in numbers(s) for part in _parts(item, value)),
        operators=frozenset(operators),
        sound=sound,
        false=set(relations) == {"="} and len(plain) > 1 and not sound,
        variables=frozenset(t.text for t in flat if t.kind == "variable"),
    )

"""The mathematics gate and the plain spelling it reads, on steps as small models write them."""

from __future__ import annotations

import time

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from semspec.semantics.gate import answer, calculates, claims, same_answer, verdict
from semspec.semantics.normalise import normalise

PAIRS = [
    ("15% of 200 = 30", "0.15 * 200 = 30", "same"),
    ("2^3 = 8", "2 * 2 * 2 = 8", "same"),
    ("2^3 = 8", "2 * 3 = 6", "different"),
    # what a step says is reached counts, beside its equation; a false equation is repeated or it is another claim
    ("So we have 16, as 21 - 5 = 16.", "21 - 5 = 16", "same"),
    ("So we have 14, as 21 - 5 = 16.", "21 - 5 = 16", "different"),
    ("Adding 6 gives 21.", "Now we have 18, as 15 + 6 = 21.", "different"),
    ("We have 3 + 4 = 7 apples.", "3 + 4 = 7", "same"),
    ("29 - 5 = 24 and 24 - 1 = 23", "29 - 5 = 23", "different"),
    ("29 - 5 = 23", "29 - 5 = 23, so we have 23", "same"),
    ("10 / 3 = 3.33", "3.33 = 10 / 3", "same"),
    ("5 + 3 = 8", "3 + 5 = 8", "same"),
    ("5 + 3 = 8", "5 + 3 = 9", "different"),
    ("5 + 3 = 8", "5 - 3 = 2", "different"),
    ("2 + 2 = 4", "2 * 2 = 4", "different"),
    ("So 5 + 3 = 8 apples.", "She has 8 apples in total.", "same"),
    ("Adding 5 and 3 gives 8 apples.", "5 + 3 = 8", "same"),
    ("Adding 5 and 3 gives 9 apples.", "5 + 3 = 8", "different"),
    ("The tax is 15% of 200: .15 * 200 = 30", "15% * 200 = 30", "same"),
    ("The tax rate is 15%.", "The tax rate is 0.15.", "same"),
    ("The price rises by 15%.", "The price rises by 15.", "different"),
    ("x = -3", "x = 3", "different"),
    ("The change is -3 degrees", "The change is 3 degrees", "different"),
    ("8 + (-3) = 5", "8 - 3 = 5", "same"),
    ("$5 + $3 = $8", "5 dollars + 3 dollars = 8 dollars", "same"),
    ("5 pounds/meal * 2 meals/day = 10 pounds/day", "2 * 5 = 10 pounds", "same"),
    ("$4 \\times 3 = 12$", "4 * 3 = 12", "same"),
    ("\\[ 4 \\cdot 3 = 12 \\]", "4 × 3 = 12", "same"),
    ("**Step 2: Total eggs** 4 * 3 = 12", "3. Eggs in all: 3 * 4 = 12", "same"),
    ("**Step 1:** 16 - 3 - 4 = 9", "**Step 2:** 16 - 3 - 4 = 9", "same"),
    ("16 - 3 = 13", "16 - 3 = 13, then 13 - 4 = 9", "different"),
    ("16 - 3 - 4 = 9", "16 - 3 = 13, then 13 - 4 = 9", "same"),
    ("\\frac{1}{2} \\times 10 = 5", "0.5 * 10 = 5", "same"),
    ("Half of 10 is 5.", "1/2 * 10 = 5", "same"),
    ("10 / 2 = 5", "10 \\div 2 = 5", "same"),
    ("The bill is 1,000 dollars.", "The bill is $1000.", "same"),
    ("x = 2y + 3", "x = 3 + 2y", "same"),
    ("x = 2y + 3", "x = 3y + 2", "different"),
    ("x^2 + 5x + 6 = 0", "x^2 + 6x + 5 = 0", "different"),
    ("x = 7", "7 = x", "same"),
    ("\\frac{10}{3} = 3.33", "10/3 = 3.333", "same"),
    ("Let's break this problem down step by step.", "We need to solve this step by step.", "unknown"),
    ("First, find the number of eggs.", "First, find the total cost.", "unknown"),
    ("Let's find the total cost.", "The total cost is 5 * 3 = 15.", "different"),
    ("She eats three eggs.", "She eats 3 eggs.", "same"),
    ("The answer is \\boxed{18}.", "Therefore, she makes 18 dollars.", "same"),
    ("The answer is \\boxed{18}.", "The answer is \\boxed{20}.", "different"),
    ("8 = 5 + 3", "5 + 3 = 8", "same"),
    ("$300 (principal) + $6 (interest) = $306", "300 + 6 = 306", "same"),
    ("x > 5", "x < 5", "different"),
    ("x > 5", "5 < x", "same"),
    ("", "", "unknown"),
    ("16 eggs per day, 3 eaten, 4 baked: 16 - 3 - 4 = 9", "16 - (3 + 4) = 9", "same"),
    ("6 times 12 is equal to 72", "12 * 6 = 72", "same"),
    ("There are 40 students and 25% are girls: 40 * 0.25 = 10", "0.25 * 40 = 10 girls", "same"),
    ("25/100 * 100% = 25%", "25 / 100 = 0.25", "same"),
    ("50 cents", "$0.50", "same"),
    ("$x_1 = 4$", "$x_2 = 4$", "different"),
    ("Let's say it took them d days: 2d = 10, so d = 5", "d = 10 / 2 = 5 days", "same"),
]
MATH = st.text(alphabet=" 0123456789.+-*/=()^xya%$\\\\{},:;<>frac", max_size=60)


@pytest.mark.parametrize(("first", "second", "expected"), PAIRS)
def test_verdict(first: str, second: str, expected: str) -> None:
    """Each pair of steps gets the verdict that a careful reader would give its mathematics."""
    assert verdict(first, second) == expected


@pytest.mark.parametrize(
    ("step", "plain"),
    [
        ("**Step 2: Total**", "total"),
        ("3. **Eggs:** 16", "eggs: 16"),
        ("- $4 \\times 3 = 12$.", "4*3=12"),
        ("\\[ \\text{Total} = \\frac{1}{2} \\cdot 10 \\]", "total=(1)/(2)*10"),
        ("\\frac{\\frac{1}{2}}{3}", "((1)/(2))/(3)"),
        ("The answer is \\boxed{1{,}000}", "the answer is 1000"),
        ("12 \u00d7 3 \u00f7 4 \u2212 1", "12*3/4-1"),
        ("15 percent or 15\\%", "15% or 15%"),
        ("2.5 dollars and $2.5", "2.5 and 2.5"),
        ("x^{2} + x_{1}", "x^2+x_1"),
        ("3 x 4", "3*4"),
        ("1,2,3 and 1,234,567", "1,2,3 and 1234567"),
        ("- .5 + x.", ".5+x"),
        ("... so, 5.", "so, 5"),
        ("", ""),
    ],
)
def test_normalise(step: str, plain: str) -> None:
    """Labels, Markdown, LaTeX and spacing go; the mathematics stays."""
    assert normalise(step) == plain


@settings(deadline=None)
@given(MATH)
def test_a_step_never_differs_from_itself(step: str) -> None:
    """A step compared with itself is the same, or has no mathematics."""
    assert verdict(step, step) in ("same", "unknown")


@settings(max_examples=200, deadline=None)
@given(MATH, MATH)
def test_gate_is_symmetric(first: str, second: str) -> None:
    """The verdict does not depend on which step comes first."""
    assert verdict(first, second) == verdict(second, first)


@settings(deadline=None)
@given(st.text(max_size=80), st.text(max_size=80))
def test_any_text_has_a_verdict(first: str, second: str) -> None:
    """No text makes the gate raise."""
    assert verdict(first, second) in ("same", "different", "unknown")


@example(1, 2, 1)
@settings(deadline=None)
@given(st.integers(-999, 999), st.integers(-999, 999), st.integers(1, 50))
def test_true_sum_equals_itself_reordered_and_no_other(a: int, b: int, off: int) -> None:
    """A sum in the other order is the same claim; with another result it is a contradiction."""
    assert verdict(f"({a}) + ({b}) = {a + b}", f"({b}) + ({a}) = {a + b}") == "same"
    assert verdict(f"({a}) + ({b}) = {a + b}", f"({a}) + ({b}) = {a + b + off}") == "different"


@pytest.mark.parametrize(
    "junk",
    [
        "9" * 100_000,
        "(" * 100_000,
        "1+" * 50_000,
        "2^" * 50_000 + "2",
        "99^64 * " * 10_000,
        "1/0 = 1/0 = " * 8_000,
        "\\frac{" * 15_000,
        "\\text{a" * 12_000,
        "^{ " * 30_000,
        " " * 100_000,
        "1. " * 33_000,
        "- " * 50_000,
        "1,000" * 20_000,
        "a_" * 50_000,
        "5.125 + 3 = 8.125\n" * 6_000,
        "x = y, " * 14_000,
        "\ufdfa" * 5_000,
        "\ud800 5 = 5",
    ],
    ids=lambda s: s[:8].encode("ascii", "backslashreplace").decode(),
)
def test_long_junk_is_cheap(junk: str) -> None:
    """Text of 10^5 characters neither raises nor takes long."""
    claims.cache_clear()
    start = time.process_time()
    assert verdict(junk, junk + " 7") in ("same", "different", "unknown")
    assert time.process_time() - start < 20


@pytest.mark.parametrize(
    ("first", "second", "same"),
    [
        ("The answer is \\boxed{12}.", "Thus $\\boxed{12.0}$ dollars in all.", True),
        ("\\boxed{12}", "\\boxed{13}", False),
        ("\\boxed{\\frac{1}{2}}", "So we get \\boxed{0.5}", True),
        ("\\boxed{x + 1}", "\\boxed{x+1}", True),
        ("\\boxed{12}", "The answer is 12.", None),
        ("\\boxed{12", "\\boxed{12}", None),
        ("\\boxed{\\sqrt{51}}", "\\boxed{51}", False),
        ("\\boxed{2\\pi}", "\\boxed{2}", False),
        ("\\boxed{\\frac{\\pi}{2}}", "\\boxed{2}", False),
        ("\\boxed{\\frac{\\pi}{2}}", "\\boxed{\\pi/2}", True),
        ("\\boxed{\\frac{2}{\\theta}}", "\\boxed{2\\theta}", False),
        ("\\boxed{3x}", "\\boxed{3y}", False),
        ("\\boxed{x^2}", "\\boxed{2}", False),
        ("\\boxed{-x+3}", "\\boxed{x+3}", False),
        ("\\boxed{3-x}", "\\boxed{-x+3}", True),
        ("\\boxed{5-\\sqrt{2}}", "\\boxed{5\\sqrt{2}}", False),
        ("\\boxed{\\log 3}", "\\boxed{3}", False),
        ("\\boxed{Yes, 5}", "\\boxed{No, 5}", False),
        ("\\boxed{[0, 5)}", "\\boxed{[0, 5]}", False),
        ("\\boxed{(-\\infty, 5)}", "\\boxed{(5, \\infty)}", False),
        ("\\boxed{3 4}", "\\boxed{12}", False),
        ("\\boxed{1 \\\\ -3}", "\\boxed{2 \\\\ -4}", False),
        ("So \\boxed{x = 5}.", "\\boxed{5}", True),
        ("\\boxed{x = 5}", "\\boxed{y = 5}", False),
        ("\\boxed{- 5}", "\\boxed{5}", False),
        ("\\boxed{- x}", "\\boxed{x}", False),
        ("\\boxed{- x}", "\\boxed{-x}", True),
        ("\\boxed{- \\pi}", "\\boxed{-\\pi}", True),
        ("\\boxed{.5}", "\\boxed{5}", False),
        ("\\boxed{.5x}", "\\boxed{5x}", False),
        ("\\boxed{12\\text{ cm}^2}", "\\boxed{12}", True),
        ("\\boxed{12\\text{ cm}^2}", "\\boxed{12\\text{ m}^2}", False),
        ("\\boxed{50\\%}", "\\boxed{50}", True),
    ],
)
def test_final_answers_are_compared_by_value(first, second, same):
    """Whatever words stand around them."""
    assert same_answer(first, second) is same


def test_an_answer_may_hold_braces():
    """The last box counts, whole."""
    assert answer("\\boxed{1} or \\boxed{\\frac{1}{2}}") == "\\frac{1}{2}"
    assert calculates("3 + 4 = 7") and not calculates("There are 7 apples.")

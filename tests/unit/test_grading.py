"""Finding and comparing final answers: tables of tricky pairs, and the bound on time."""

import threading
import time

import pytest

from semspec.problems import grading
from semspec.problems.grading import equivalent, final_answer, grade

SAME = [
    ("18", "18"),
    ("18.0", "18"),
    ("18.", "18"),
    ("+18", "18"),
    ("018", "18"),
    ("$18", "18"),
    (r"\$18", "18"),
    (r"\$18.00", "18"),
    ("18 dollars", "18"),
    (r"18 \text{ dollars}", "18"),
    (r"\text{18 dollars}", "18"),
    ("18 dollars per day", "18"),
    ("£18", "18"),
    ("**18**", "18"),
    (r"16\text{ cm}^2", "16"),
    ("60^\\circ", "60"),
    ("60°", r"60^{\circ}"),
    ("x = 18", "18"),
    ("1,000", "1000"),
    ("1{,}000", "1000"),
    (r"1\,000", "1000"),
    (r"1,\!000", "1000"),
    ("1,234,567.5", "1234567.50"),
    (".5", "1/2"),
    ("0.5", r"\frac{1}{2}"),
    (r"\dfrac12", r"\frac{1}{2}"),
    (r"\frac 1 2", "0.5"),
    (r"-\frac{1}{2}", "-.5"),
    (r"\frac{-1}{2}", r"-\frac{1}{2}"),
    ("−5", "-5"),
    ("-$5", "-5"),
    ("1 1/2", "1.5"),
    (r"1\frac{1}{2}", "3/2"),
    ("0.333333", "1/3"),
    ("50%", "50"),
    (r"50\%", "0.5"),
    ("50 percent", "50%"),
    ("0.5", "50%"),
    (r"\left(1, 2\right)", "(1,2)"),
    (r"\left( 3, \frac{\pi}{2} \right)", r"(3, \pi/2)"),
    (r"[0,\infty)", r"[0, +\infty)"),
    (r"(-\infty,2)\cup(3,\infty)", r"(-\infty, 2) \cup (3, \infty)"),
    ("2, 1", "1,2"),
    (r"\{1, 2\}", "1, 2"),
    (r"2\sqrt{2}", r"\sqrt{8}"),
    (r"\frac{1}{\sqrt3}", r"\frac{\sqrt{3}}{3}"),
    ("(x+1)^2", "x^2+2x+1"),
    ("y = 2x+3", "2x+3"),
    ("-q + p", "p - q"),
    ("4i+3", "3+4i"),
    ("2^{10}", "1024"),
    ("2**3", "8"),
    (r"\begin{pmatrix} 1 \\ 2 \end{pmatrix}", r"\begin{pmatrix}1\\2\end{pmatrix}"),
    (r"\text{Evelyn}", "Evelyn"),
    ("east", r"\text{East}"),
    ("(B)", "B"),
    (r"\text{B) the second}", "B"),
]
DIFFERENT = [
    ("17", "18"),
    ("-18", "18"),
    ("180", "18"),
    ("1.8", "18"),
    ("1,00", "100"),
    ("18 thousand", "18"),
    ("18 or 19", "18"),
    ("1/3", "1/2"),
    (r"\frac{2}{1}", r"\frac{1}{2}"),
    ("0.33", "1/3"),
    ("10000001", "10000000"),
    ("50", "0.5"),
    ("0.5", "50"),
    ("5000%", "50%"),
    ("1/0", "1"),
    ("(1,2)", "[1,2]"),
    ("(2,1)", "(1,2)"),
    ("(1,2,3)", "(1,2)"),
    ("1", "1,2"),
    ("(x+1)^2", "x^2+1"),
    ("q - p", "p - q"),
    (r"\sqrt{2}", "2"),
    ("x < 3", "x > 3"),
    ("seat", "east"),
    ("A", "B"),
    ("5x", "5"),
    ("", "5"),
    ("no answer", "5"),
]


@pytest.mark.parametrize(("answer", "gold"), SAME)
def test_same(answer, gold):
    """Two ways to write one answer are the same."""
    assert equivalent(answer, gold)


@pytest.mark.parametrize(("answer", "gold"), DIFFERENT)
def test_different(answer, gold):
    """A wrong answer is wrong, however near it looks."""
    assert not equivalent(answer, gold)


@pytest.mark.parametrize(
    ("output", "answer"),
    [
        (r"So \boxed{18}.", "18"),
        (r"\boxed{1} no, \boxed{2}", "2"),
        (r"\boxed{\frac{1}{2}}", r"\frac{1}{2}"),
        (r"\boxed{\{1, 2\}}", r"\{1, 2\}"),
        (r"\boxed{\boxed{5}}", "{5}"),
        (r"\boxed {7}", "7"),
        (r"\boxed 7", "7"),
        (r"\boxed{5} then \boxed{6", "5"),
        (r"\boxed{6 and \boxed{5}", "5"),
        (r"Put it in \boxed{}. The answer is 4.", "4"),
        (r"\boxed{18} and later 99", "18"),
        ("a = 3\n#### 1,234", "1,234"),
        ("The answer is 18.", "18"),
        ("The answer is 18.50 dollars, as 3 * 6 is near.", "18.50"),
        ("The answer is $\\frac{1}{2}$, which is 3 less.", r"\frac{1}{2}"),
        ("The final answer is: **42**", "42"),
        ("Answer: 42", "42"),
        ("The answer is east.", "east"),
        ("The answer is 5. No, the answer is 6.", "6"),
        ("She has 16 - 3 = 13 eggs.", "13"),
        ("It is 3-5", "5"),
        ("It falls to -5.", "-5"),
        ("That makes $1,234.50.", "$1,234.50"),
        ("In all 3/4 of it", "3/4"),
        ("no answer", None),
        ("", None),
    ],
)
def test_final_answer(output, answer):
    """The answer is the last box, else what is stated, else the last number."""
    assert final_answer(output) == answer


@pytest.mark.parametrize(
    "output",
    [
        "\\boxed{" * 20_000,
        "}" * 100_000,
        "\\boxed{" + "9" * 100_000 + "}",
        "\\boxed{" + "{" * 50_000 + "}" * 50_000 + "}",
        "\\boxed{" + "(" * 400 + "}",
        "\\boxed{5 " + "a" * 150 + "!}",
        "the answer is " + "a " * 50_000,
        "1," * 50_000,
        "$" * 100_000,
        "\\boxed{\\frac" + "1" * 400 + "}",
        "\ud800 \\boxed{\ud800}",
    ],
)
def test_hostile_output_is_quick(output):
    """Long, unbalanced and broken outputs are graded wrong, soon, without an error."""
    start = time.perf_counter()
    assert not grade(output, r"\frac{x}{7}", timeout=0.5).correct
    assert time.perf_counter() - start < 30  # nearly all of it a start of the worker on a busy machine


def test_time_is_bounded_in_any_thread():
    """An endless comparison is cut off outside the main thread too, and the next one works."""
    assert equivalent("(1,2)", "( 1, 2 )")  # the worker is up
    verdicts = []

    def work():
        for answer, gold in [("10^{10^{10}}", "x+1"), (r"2\sqrt{2}", r"\sqrt{8}")]:
            verdicts.append(grade(f"\\boxed{{{answer}}}", gold, timeout=1).correct)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(60)
    assert verdicts == [False, True]


def test_worker_that_dies_is_replaced():
    """A killed worker costs one restart, no error."""
    assert equivalent(r"\sqrt{4}", "2")
    grading._WORKER._process.kill()
    grading._WORKER._process.wait()
    assert equivalent(r"\sqrt{4}", "2")


def test_many_threads_share_the_worker():
    """Verdicts don't get mixed up between threads."""
    wrong = []

    def work(i):
        for k in range(5):
            if equivalent(rf"\sqrt{{{(i + k) ** 2}}}", str(i + k)) is not True or equivalent(rf"\sqrt{{{i}}}", "x"):
                wrong.append((i, k))

    threads = [threading.Thread(target=work, args=(i,)) for i in range(2, 8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join(60)
    assert not wrong


def test_plain_numbers_need_no_worker(monkeypatch):
    """Numbers are compared without starting a process."""
    monkeypatch.setattr(grading._WORKER, "compare", lambda *_: pytest.fail("worker used"))
    assert grade("#### 18", "18").correct
    assert not grade(r"\boxed{17}", "18").correct
    assert equivalent("1,000", "1000")

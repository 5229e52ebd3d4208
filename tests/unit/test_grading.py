"""Finding and comparing final answers, letters included: tables of tricky pairs, and the bound on time."""

import threading
import time

import pytest

from semspec.problems.answer import final_answer
from semspec.problems.choice import chosen, grade_choice
from semspec.problems.grading import equivalent, grade
from semspec.problems.mathverify import WORKER

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
    ("x=18.0", "x = 18"),
    ("2 1/2", "5/2"),
    ("1, 2 1/2", "1, 5/2"),
    ("1 1/2 hours", r"\frac32"),
    ("-1 1/2", "-1.5"),
    ("1 234 567", "1,234,567"),
    ("1 234.5", "1234.5"),
    ("18 (eighteen)", "18"),
    (r"120\text{ kN}", "120"),
    ("10th", "10"),
    ("18 red apples", "18 apples"),
    ("2 boxes", "2 box"),
    ("n = 18 eggs", "18"),
    ("18 dollars a day", "18"),
    ("5cm", "5 centimeters"),
    ("12m/s", "12"),
    ("5 m", "5"),
    (r"5\text{m}", "5"),
    ("3 PM", "3 p.m."),
    ("3 km/h", "3 kilometers per hour"),
    ("60 mph", "60 miles per hour"),
    ("90 km/h", "90 kph"),
    ("$18 a day", "18 dollars a day"),
    ("$5 per hour", "5 dollars per hour"),
    ("5 keys", "5 key"),
    (r"\sqrt{2}\text{ days}", r"\sqrt2"),
    ("3 sq. ft.", "3 ft^2"),
    ("864 square inches", r"864 \mbox{ inches}^2"),
    (r"\frac{270}{7}", r"\frac{270}7\text{ degrees}"),
    (r"\sqrt{2}\text{ m}", r"\sqrt2"),
    (r"6\pi\text{ cm}^2", r"6\pi"),
    (r"\frac{m}{2}", r"\frac{1}{2} m"),
    ("3R^2", "3 R^{2}"),
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
    ("x = 3", "y = 3"),
    (r"x = \sqrt{2}", r"y = \sqrt{2}"),
    ("1 1/2", "11/2"),
    ("2 1/2", "21/2"),
    ("1, 2 1/2", "1, 21/2"),
    ("1 2", "12"),
    ("12 34", "1234"),
    ("(1 2)", "(12)"),
    ("2 (xy)", "2"),
    ("2 (sin x)", "2"),
    ("4x^3", "4x^2"),
    ("4x^2", "4"),
    ("3x^{2}", "3x^{3}"),
    ("5r^2", "5"),
    ("6xy", "6"),
    ("6xy", "6ab"),
    ("6 xyz", "6"),
    ("3t", "3"),
    (r"2\pi h", r"2\pi"),
    ("2pi", "2"),
    ("2 theta", "2"),
    ("2 sin x", "2 cos x"),
    ("18 trillion", "18"),
    ("3 halves", "3"),
    ("5 squared", "5"),
    ("5 less than x", "5"),
    ("18 apples", "18 eggs"),
    ("5 km", "5 cm"),
    ("5 km", "5 km/h"),
    ("60 mph", "60 kph"),
    ("18 dollars", "18 euros"),
    ("3 hours", "3 minutes"),
    ("12 cm^2", "12 cm^3"),
    ("5 square cm", "5 cm"),
    ("3 a.m.", "3 p.m."),
    (r"\sqrt{2}\text{ km}", r"\sqrt{2}\text{ cm}"),
]


OUTPUTS = [
    (r"So it is \boxed{\frac{3}{4}}.", "0.75", True),
    (r"So it is \boxed{\frac34}.", "3/4", True),
    (r"\boxed{\frac{6}{8}}", r"\frac{3}{4}", True),
    (r"\boxed{\frac{4}{3}}", r"\frac{3}{4}", False),
    ("The answer is 3/4.", r"\frac{3}{4}", True),
    (r"The answer is $2\frac{1}{2}$.", "2.5", True),
    ("The answer is 2 1/2 hours.", "2.5", True),
    (r"\boxed{\frac{21}{2}}", r"2\frac{1}{2}", False),
    (r"\boxed{12 \text{ cm}}", "12", True),
    (r"\boxed{12\,\mathrm{m/s}}", "12", True),
    (r"\boxed{12 \text{ square inches}}", "12", True),
    (r"\boxed{12~\text{km/h}}", "12", True),
    ("The answer is 12 kg.", "12", True),
    (r"\boxed{12}", r"12 \text{ cm}", True),
    (r"\boxed{\$12.50}", "12.5", True),
    (r"\boxed{12\text{ dozen}}", "12", False),
    (r"\boxed{[1, 2)}", "[1,2)", True),
    (r"\boxed{[1, 2]}", "[1,2)", False),
    (r"\boxed{\left[\frac12, \infty\right)}", r"[0.5,\infty)", True),
    (r"\boxed{(-\infty, 1] \cup [2, \infty)}", r"(-\infty,1]\cup[2,\infty)", True),
    (r"\boxed{(-\infty, 1) \cup [2, \infty)}", r"(-\infty,1]\cup[2,\infty)", False),
    (r"\boxed{x \in [1,2)}", "[1,2)", True),
    (r"\boxed{(3, -4)}", "(3,-4)", True),
    (r"\boxed{(x, y) = (3, -4)}", "(3,-4)", True),
    (r"\boxed{(-4, 3)}", "(3,-4)", False),
    (r"\boxed{\left(3, \tfrac{\pi}{2}\right)}", r"\left( 3, \frac{\pi}{2} \right)", True),
    (r"\boxed{1, 2, 3}", "3,2,1", True),
    (r"\boxed{1, 2}", "1,2,3", False),
    (r"\boxed{x = 1 \text{ or } x = 2}", "1,2", True),
    (r"\boxed{1 \text{ and } 2}", "1,2", True),
    (r"\boxed{15\%}", "15", True),
    (r"\boxed{15\%}", r"15\%", True),
    (r"\boxed{0.15}", r"15\%", True),
    (r"\boxed{1.5\%}", r"15\%", False),
    ("The answer is 15 percent.", "15", True),
    (r"\boxed{1,234,567}", "1234567", True),
    (r"\boxed{1{,}234{,}567}", "1234567", True),
    (r"\boxed{1\,234\,567}", "1234567", True),
    (r"\boxed{1 234 567}", "1234567", True),
    (r"\boxed{1,234}", "1,234", True),
    (r"\boxed{1,234}", "1.234", False),
    ("Total: 12,345 eggs", "12345", True),
    (r"\boxed{\text{Friday}}", "Friday", True),
    (r"\boxed{\textbf{friday}}", r"\text{Friday}", True),
    (r"\boxed{\text{Monday}}", r"\text{Friday}", False),
    (r"\boxed{\text{odd}}", r"\text{even}", False),
    (r"\boxed{\text{Yes}}", "yes", True),
    (r"\boxed{\text{(C)}}", "C", True),
    ("There is no answer.", "5", False),
    ("I don't know.", "0", False),
    ("", "0", False),
    (r"\boxed{}", "0", False),
    (r"\boxed{\text{no answer}}", "5", False),
    (r"First \boxed{5}, then \boxed{7}.", "7", True),
    (r"First \boxed{5}, then \boxed{7}.", "5", False),
    (r"\boxed{5} or \fbox{7}", "7", True),
    (r"\boxed{x=\boxed{5}}", "5", True),
    (r"\boxed{5} and then \boxed{7", "5", True),
    (r"\boxed{7", "7", True),
    (r"\boxed{\frac{1}{2}", "0.5", False),
    (r"\boxed{\frac{1}{2}", "2", False),
    (r"\boxed{\{1, 2\}", "1,2", False),
    (r"}}} \boxed{5} {{{", "5", True),
    ("\\boxed{" + "9" * 100_000 + "}", "9" * 100_000, True),
    ("\\boxed{" + "9" * 100_000 + "}", "9" * 99_999, False),
    ("\\boxed{" + "x+" * 50_000 + "1}", "1", False),
    ("The answer is " + "y" * 100_000, "5", False),
    ("1/" * 50_000, "7", False),
    (r"\boxed{1.5 \times 10^{3}}", "1500", True),
    (r"\boxed{1.5e3}", "1500", True),
    (r"\boxed{10^{-3}}", "0.001", True),
    (r"\boxed{\sqrt{50}}", r"5\sqrt{2}", True),
    (r"\boxed{90^\circ}", "90", True),
    (r"\boxed{90 \text{ degrees}}", r"90^\circ", True),
    (r"\boxed{1001_2}", "1001_2", True),
    (r"\boxed{1001_2}", "1001_3", False),
    (r"\boxed{025}", "25", True),
    (r"\boxed{n = 25}", "025", True),
    (r"\boxed{\approx 3.14}", "3.14", True),
    (r"\boxed{3.14159}", r"\pi", False),
    (r"\boxed{5!}", "120", True),
    (r"\boxed{-\infty}", r"\infty", False),
    (r"\boxed{2x + 3}", "f(x) = 2x+3", True),
    (r"\boxed{f(x) = 2x + 3}", "2x+3", True),
    (r"**Final answer:** $\frac{1}{2}$", "0.5", True),
    ("Final Answer: The final answer is $25$. I hope it is correct.", "25", True),
    ("The answer is: \n\n$$25$$", "25", True),
    ("The answer is\n25", "25", True),
    ("Answer:\n\\[\n25\n\\]", "25", True),
    ("The answer is -3.", "3", False),
    ("the result is 7 - 12 = -5", "-5", True),
    ("It takes 2 1/2 hours", "5/2", True),
    ("The answer is 1.5e3.", "1500", True),
    (r"\boxed{5e}", "5", False),
    (r"\boxed{1001_{2}}", "1001_2", True),
]
OPTIONS = ["a decrease in pressure", "12", "iron oxide", "iron"]
CHOSEN = [
    (r"So \boxed{B}.", "B"),
    (r"\boxed{\text{C}}", "C"),
    (r"\boxed{\textbf{(D)}}", "D"),
    (r"\boxed{(A)}", "A"),
    (r"\boxed{b}", "B"),
    (r"\boxed{B) 12}", "B"),
    (r"\boxed{\text{Option C}}", "C"),
    (r"\boxed{\text{C: iron oxide}}", "C"),
    (r"\boxed{12}", "B"),
    (r"\boxed{12.0}", "B"),
    (r"\boxed{\text{iron}}", "D"),
    (r"\boxed{\text{Iron Oxide}}", "C"),
    (r"\boxed{13}", None),
    (r"\boxed{E}", None),
    (r"\boxed{A, C}", None),
    (r"\boxed{A} is what I thought, but \boxed{C}", "C"),
    (r"\boxed{B} then \boxed{C", "B"),
    ("The answer is (C).", "C"),
    ("The answer is C", "C"),
    ("The correct answer is **D**.", "D"),
    ("The correct answer is: **D) iron**", "D"),
    ("the correct option is therefore B.", "B"),
    ("The best answer is $\\boxed{A}$", "A"),
    ("Answer: D", "D"),
    ("**Answer:** D", "D"),
    ("**Answer: (B)**", "B"),
    ("ANSWER: c", "C"),
    ("Final answer: option B", "B"),
    ("#### C", "C"),
    ("The answer is\n\nC) iron oxide", "C"),
    ("The answer is $\\text{B}$.", "B"),
    ("The answer is \\(\\mathrm{B}\\).", "B"),
    ("The answer is a decrease in pressure.", "A"),
    ("The answer is iron.", "D"),
    ("The answer is iron oxide, which rusts.", "C"),
    ("The answer is A. No, the answer is B.", "B"),
    ("The answer is B, not A.", "B"),
    ("The answer is A or C.", None),
    ("The answer is A and C.", None),
    ("The answer is not A. The answer is C.", "C"),
    ("Answer: A because the others fail", "A"),
    ("I think the answer is A.\nBut wait.\nSo \\boxed{D}", "D"),
    ("\\boxed{A}. On reflection, the answer is D.", "D"),
    ("**B**", "B"),
    ("It must be **C)** since it rusts.", "C"),
    ("I would go with option A", "A"),
    ("Option A fits, whereas option B is wrong.", "A"),
    ("Option B is incorrect. Option D fits. We rule out option C.", "D"),
    ("B is the correct answer.", "B"),
    ("(C) is correct.", "C"),
    ("Therefore, D (iron) is the best answer.", "D"),
    ("A is wrong.\nB is wrong.\n\nC", "C"),
    ("It rusts.\n\n(C)", "C"),
    ("It rusts.\n\n**C**.", "C"),
    ("It rusts.\n\nC) iron oxide", "C"),
    ("It rusts, so it is iron.", "D"),
    ("It rusts, and what forms is iron oxide.", "C"),
    ("Iron or 12, who knows.", None),
    ("A good question. I have no idea.", None),
    ("There is no answer.", None),
    ("None of the options is right.", None),
    ("", None),
    ("A) a decrease in pressure\nB) 12\nC) iron oxide\nD) iron", None),
    ("A) a decrease in pressure\nB) 12\nC) iron oxide\nD) iron\n\nAnswer with the letter of the right option.", None),
    ("So 7 + 5 = 12", "B"),
    ("The answer is C, I think.", "C"),
    ("The answer is (C), I believe.", "C"),
    ("The answer is B and I am sure.", "B"),
    ("The answer is C, D is wrong.", "C"),
    ("The correct answer is C, A is too small.", "C"),
    ("The answer is A, C.", None),
    ("The answer is A, B, and C.", None),
    ("The answer is (A) and (C).", None),
    ("So neither A nor B is correct, which leaves C.", "C"),
    ("That leaves us with option (D), iron.", "D"),
    ("That leaves A and B.", None),
    ("The answer is (B).\n\nLoss of bromide leaves C with a positive charge.", "B"),
    ("A and B are too small, leaving (C) as the only one.", "C"),
    ("Leaving a residue.", None),
    ("Neither A nor B is correct.", None),
    ("A or B is correct.", None),
    ("#### Option D\nIt is iron. That fails.\n\nThus C.", "C"),
    ("#### Option D\nIt is iron.\n\nSo, **C**", "C"),
    ("#### Option D", "D"),
    ("#### (B)\n\nQuestion:", "B"),
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
        ("#### 18\n\nQuestion: 7 more?", "18"),
        ("#### 18 apples\nDone.", "18"),
        ("It is 4.\n#### east", "east"),
        ("#### Step 3: Total\nSo the total is 4 + 3 = 7 apples.", "7"),
        ("#### 3. Total\n\nSo 7 apples.", "7"),
        ("#### **Conclusion**\nIn total 18 apples.", "18"),
        ("##### 3\nIn total 18 apples.", "18"),
        ("The answer isn't 5 but 6.", "6"),
        ("The answer is not 5 but 6.", "6"),
        ("The answer is 18 (eighteen).", "18"),
        ("The answer is 2 (x + 1).", "2 (x + 1)"),
        ("The answer is f (3).", "f (3)"),
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
        (r"It is $\boxed{18$", "18"),
        (r"It is \(\boxed{18\)", "18"),
        (r"It is \boxed{18.", "18"),
        (r"It is \boxed{18 \text{ dollars}", "18"),
        (r"It is \boxed{3, so x = 5. The final answer is 7.", "7"),
        (r"So 5 of \boxed{\frac{1}{2", None),
        (r"So 5 of \boxed{3, 4", None),
        ("no answer", None),
        ("", None),
    ],
)
def test_final_answer(output, answer):
    """The answer is the last box, else what is stated, else the last number."""
    assert final_answer(output) == answer


@pytest.mark.parametrize(("output", "gold", "correct"), OUTPUTS)
def test_whole_output(output, gold, correct):
    """The verdict on an output as a model writes it: fractions, units, intervals, tuples, percent, boxes, none."""
    assert grade(output, gold).correct is correct


@pytest.mark.parametrize(("output", "letter"), CHOSEN)
def test_chosen_letter(output, letter):
    """Of the options, the one that is stated last: by its letter, or by words that fit no other."""
    found = grade_choice(output, "C", OPTIONS)
    assert found.answer == letter and found.correct == (letter == "C")


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


@pytest.mark.parametrize(
    "output",
    [
        "\\boxed{" * 20_000,
        "\\boxed{" * 10_000 + "}" * 10_000,
        "{" * 50_000 + "}" * 100_000,
        "\\boxed{" + "A" * 100_000 + "}",
        "the answer is " * 8_000,
        "the answer is " + "(" * 100_000,
        "the answer is " + "\\text" * 20_000,
        "option " * 15_000,
        "*" * 100_000,
        "A " * 50_000,
        "A" + " " * 100_000 + "is",
        "(A" * 50_000,
        "_$\\" * 30_000,
        "iron, 12 " * 12_000,
        "\ud800 \\boxed{\ud800}",
    ],
)
def test_hostile_choice_is_quick(output):
    """No output keeps the choice grader for long, or makes it guess."""
    start = time.perf_counter()
    assert chosen(output, OPTIONS) is None
    assert time.perf_counter() - start < 10


def test_time_is_bounded_in_any_thread():
    """An endless comparison is cut off outside the main thread too, and the next one works."""
    assert equivalent("(1,2)", "( 1, 2 )")  # the worker is up
    verdicts = []

    def work():
        for answer, gold, timeout in [("10^{10^{10}}", "x+1", 1), (r"2\sqrt{2}", r"\sqrt{8}", 5)]:
            verdicts.append(grade(f"\\boxed{{{answer}}}", gold, timeout=timeout).correct)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(60)
    assert verdicts == [False, True]


def test_worker_that_dies_is_replaced():
    """A killed worker costs one restart, no error."""
    assert equivalent(r"\sqrt{4}", "2")
    WORKER._process.kill()
    WORKER._process.wait()
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
    monkeypatch.setattr(WORKER, "compare", lambda *_: pytest.fail("worker used"))
    assert grade("#### 18", "18").correct
    assert not grade(r"\boxed{17}", "18").correct
    assert equivalent("1,000", "1000")

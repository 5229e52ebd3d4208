"""What salvaging saves, measured at equal decisions."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import fake_results as fake
import pytest

from semspec.bench.statistics import ratio_interval
from semspec.report import salvage, tables


def alike(problem: int, *verdicts: bool, **fields) -> dict:
    """An answer of `semantic` with so many judged steps, and a step that nobody drafted."""
    judged = [
        fake.step("draft", f"step {k}", accepted=True)
        if kept
        else fake.step("target", f"mine {k}", accepted=False, rejected_text=f"step {k}")
        for k, kept in enumerate(verdicts)
    ]
    return fake.row(problem, "semantic", trace=[*judged, fake.step("target", "the end")], **fields)


def test_decisions_are_what_was_drafted_and_the_verdicts() -> None:
    """Not what the target wrote after a rejection, nor a step that was not drafted."""
    row = alike(0, True, False)
    assert salvage.decisions(row) == [("step 0", True), ("step 1", False)]
    rewritten = [s | ({"text": "another"} if s["author"] == "target" else {}) for s in row["trace"]]
    assert salvage.decisions(row | {"trace": rewritten}) == salvage.decisions(row)


def test_what_salvaging_saves_is_measured_at_the_same_decisions() -> None:
    """Answers that differ in a verdict, a drafted text or the seed are left out; the rest is summed, with intervals."""
    four = [
        alike(0, True, False, latency_s=10.0, target_passes=40, correct=True),
        alike(1, False, False, latency_s=20.0, target_passes=60, correct=False),
        alike(2, True, latency_s=8.0),
        alike(3, False, latency_s=99.0, target_passes=99),
        alike(4, True, latency_s=99.0),
        alike(5, False, latency_s=99.0, seed=1),
    ]
    rows = [
        *four,
        fake.hybrid(four[0], 9.0, 20),
        fake.hybrid(four[1], 15.0, 45, correct=True),
        fake.hybrid(four[2], 8.5, 0),
        fake.hybrid(four[3], 1.0, 1, trace=alike(3, True)["trace"]),
        fake.hybrid(four[4], 1.0, 1, trace=[fake.step("draft", "other", accepted=True)]),
        fake.hybrid(four[5], 1.0, 1, seed=2),
        fake.row(0, "target"),
    ]
    table = salvage.table(rows, 200, 7)
    low, high = ratio_interval([20, 45], [40, 60], 200, 7)
    passes = f"0.65 [{low:.2f}, {high:.2f}]"
    whole, rejected = table.rows
    name = "semantic → semantic_hybrid"
    assert whole[:5] == [name, "decided alike", "3 of 5", "33.3 → 21.7", passes]
    assert rejected[:5] == [name, "decided alike, a step rejected", "2 of 3", "50.0 → 32.5", passes]
    assert rejected[5] == "15.00 → 12.00" and rejected[6].startswith("0.80 [") and rejected[7] == "50% → 100%"
    raw = list(csv.DictReader(io.StringIO(table.csv())))
    assert float(raw[1]["passes_ratio"]) == 0.65 and float(raw[1]["passes_ratio_high"]) == high
    ((term, said),) = salvage.sentences(rows, 200, 7)
    assert term == "semantic_hybrid against semantic" and said.startswith("3 answers decided alike, 2 of them with a ")
    assert passes in said and "Pass@1 goes 50% → 100%" in said


def test_repeats_of_a_problem_are_resampled_together() -> None:
    """Three answers to one problem and one to another give the interval of two sums, not of four values."""
    rows = [alike(0, False, repeat=r, target_passes=10) for r in range(3)] + [alike(1, False, target_passes=20)]
    rows += [fake.hybrid(row, 1.0, 5 + row["repeat"]) for row in rows]
    (_, part) = salvage.pairs(rows, "semantic", "semantic_hybrid")
    assert part.ratio("target_passes", 300, 0) == (23 / 50, ratio_interval([18, 5], [30, 20], 300, 0))


@pytest.mark.parametrize(
    ("verdict", "spent", "text"),
    [
        (True, 0, tables.DASH),  # nothing was rejected: no pass to save
        (False, 12, "0.25"),  # one problem has no interval
    ],
)
def test_salvaging_without_enough_to_compare(verdict: bool, spent: int, text: str) -> None:
    row = alike(0, verdict, target_passes=spent)
    whole, rejected = salvage.table([row, fake.hybrid(row, 1.0, spent // 4)]).rows
    assert whole[4] == text and rejected[2] == f"{int(not verdict)} of 1"
    assert all(cell == tables.DASH for cell in rejected[3:]) == verdict


def test_variants_are_compared_with_their_equals() -> None:
    """What decides has to be the same, and how the draft writes; how a rejected step is written need not."""
    names = [
        "semantic",
        "semantic@gamma=2",
        "semantic_hybrid",
        "semantic_hybrid@gamma=2+ngram=5",
        "semantic_hybrid@bias=1",
        "semantic_hybrid@drafting=lookup",
        "semantic@drafting=lookup+gamma=2",
        "semantic_hybrid@gamma=2+drafting=lookup+proposals=draft",
    ]
    assert salvage.twins(names) == [
        ("semantic", "semantic_hybrid"),
        ("semantic@gamma=2", "semantic_hybrid@gamma=2+ngram=5"),
        ("semantic@drafting=lookup+gamma=2", "semantic_hybrid@gamma=2+drafting=lookup+proposals=draft"),
    ]


@pytest.mark.parametrize("both", [True, False])
@pytest.mark.usefixtures("no_drawing")
def test_page_and_tables_say_what_salvaging_saves(tmp_path: Path, both: bool) -> None:
    """In a section of the page, in hybrid.md, and in a line of results.md; without both methods "not run"."""
    rows = fake.rows(4)
    semantic = [r for r in rows if r["method"] == "semantic"]
    html = fake.page(tmp_path, [*rows, *([fake.hybrid(r, 1.0, 10) for r in semantic] if both else [])])
    section = html[html.index("<h2>What salvaging saves</h2>") :].partition("</section>")[0]
    own = (tmp_path / "results/report/tables/hybrid.md").read_text(encoding="utf-8")
    results = (tmp_path / "results/report/tables/results.md").read_text(encoding="utf-8")
    for text in (section, own):
        assert ("decided alike, a step rejected" in text, tables.NOT_RUN in text) == (both, not both)
        assert "word for word" in text
    line = results[results.index("- **semantic_hybrid against semantic**: ") :].partition("\n")[0]
    assert ("4 answers decided alike" if both else tables.NOT_RUN) in line

"""Metrics, their intervals, and the runner that makes the rows."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest
from fake_results import row, settings

from semspec import provenance
from semspec.bench import runner
from semspec.bench.metrics import summarize
from semspec.bench.statistics import interval, ratio_interval
from semspec.decoding.base import Answer, TraceStep
from semspec.errors import UserError
from semspec.files import read_json, read_jsonl

TABLE = [
    row(0, "target", latency_s=4.0, output_tokens=40, target_tokens=40),
    row(1, "target", latency_s=6.0, output_tokens=60, target_tokens=60),
    row(2, "target", latency_s=2.0, output_tokens=20, target_tokens=20, correct=False),
    row(
        0,
        "semantic",
        latency_s=2.0,
        output_tokens=40,
        target_tokens=10,
        draft_tokens=30,
        offered=4,
        accepted=3,
        accepted_tokens=30,
        verifications=4,
        target_passes=9,
        exact_offered=6,
        exact_accepted=3,
        discarded_tokens=8,
        verifier_tokens=38,
    ),
    row(
        1,
        "semantic",
        latency_s=6.0,
        output_tokens=50,
        target_tokens=50,
        offered=2,
        accepted=0,
        accepted_tokens=0,
        verifications=2,
        discarded_tokens=22,
        verifier_tokens=22,
        correct=False,
        finish_reason="length",
    ),
    row(
        2,
        "semantic",
        latency_s=1.0,
        output_tokens=30,
        target_tokens=0,
        draft_tokens=30,
        offered=3,
        accepted=3,
        accepted_tokens=30,
        verifications=3,
        verifier_tokens=30,
        correct=False,
    ),
]


def test_metrics_of_a_table_done_by_hand() -> None:
    """Every metric of a three-problem table equals the value computed by hand."""
    got = summarize(TABLE, 200)["semantic"]
    expected = {
        "pass_at_1": 1 / 3,
        "latency_s": 3.0,
        "tps": 120 / 9,
        "speedup": (2 + 1 + 2) / 3,
        "speedup_total": 12 / 9,
        "pass_at_1_diff": -1 / 3,
        "target_ratio": 60 / 120,
        "acceptance_rate": 6 / 9,
        "acceptance_length": 60 / 9,
        "discarded_tokens": 10.0,
        "verifier_tokens": 30.0,
        "target_passes": 3.0,
        "exact_acceptance_rate": 0.5,
        "exact_acceptance_length": 3 / 9,
        "truncated": 1 / 3,
        "n": 3,
    }
    assert {k: got[k] for k in expected} == pytest.approx(expected)


def test_a_ratio_of_sums_is_resampled_in_pairs() -> None:
    """Equal ratios give no width, whatever the problems' lengths; unequal ones give an interval around the ratio."""
    assert ratio_interval([2, 4, 100], [1, 2, 50]) == (2, 2)
    low, high = ratio_interval([1, 9, 3, 4], [1, 3, 3, 1])
    assert low < 17 / 8 < high
    with pytest.raises(ValueError, match="same problems"):
        ratio_interval([1, 2], [1])


def test_the_target_is_its_own_yardstick() -> None:
    """The target's speed-up is 1 and its difference 0, without any width; what it does not do is null."""
    got = summarize(TABLE, 200)["target"]
    assert (got["speedup"], got["speedup_ci"]) == (1, [1, 1])
    assert (got["pass_at_1_diff"], got["pass_at_1_diff_ci"]) == (0, [0, 0])
    assert got["acceptance_rate"] is None and got["acceptance_length"] is None
    assert got["exact_acceptance_rate"] is None and got["exact_acceptance_length"] is None


def test_the_pass_that_read_a_salvaged_draft_counts() -> None:
    """Two rejected drafts whose tokens were kept in part, and three passes that wrote: five passes kept 12 tokens."""
    steps = [{"rejected_text": "x", "exact_offered": 9}] * 2 + [{"rejected_text": None, "exact_offered": 4}]
    rows = [
        row(0, "target"),
        row(0, "semantic_hybrid", exact_offered=22, exact_accepted=12, target_passes=3, trace=steps),
    ]
    assert summarize(rows, 10)["semantic_hybrid"]["exact_acceptance_length"] == 12 / 5


def test_a_pass_that_reads_what_nobody_offered_has_no_acceptance_length() -> None:
    """`speculative_thinking` lets the target read the draft's text, and asks it for no verdict."""
    rows = [row | {"offered": 0, "accepted": 0, "accepted_tokens": 0} for row in TABLE if row["method"] == "semantic"]
    assert summarize(rows, 200)["semantic"]["acceptance_length"] is None


def test_speedup_is_null_without_the_target() -> None:
    """Without the target's rows nothing is compared with it."""
    got = summarize([r for r in TABLE if r["method"] != "target"], 200)["semantic"]
    assert got["speedup"] is None and got["speedup_ci"] is None and got["pass_at_1_diff"] is None


def test_pairing_leaves_out_problems_without_a_partner() -> None:
    """A problem that the target has not answered counts in Pass@1 and not in the speed-up."""
    got = summarize([r for r in TABLE if (r["id"], r["method"]) != ("p1", "target")], 200)["semantic"]
    assert got["speedup"] == pytest.approx(2.0)
    assert got["n"] == 3


def test_repeats_are_averaged_within_a_problem() -> None:
    """Two repeats of one problem weigh as much as one answer of another."""
    rows = [row(0, "target"), row(0, "target", repeat=1, correct=False), row(1, "target")]
    assert summarize(rows, 200)["target"]["pass_at_1"] == pytest.approx(0.75)


def test_interval_is_seeded_and_holds_the_value() -> None:
    """The same seed gives the same interval, another seed another, and the mean lies inside."""
    values = np.random.default_rng(1).exponential(size=40)
    low, high = interval(values, 500, seed=3)
    assert (low, high) == interval(values, 500, seed=3)
    assert (low, high) != interval(values, 500, seed=4)
    assert low < values.mean() < high


def test_interval_has_about_the_width_of_the_normal_one() -> None:
    """On many values the percentile interval agrees with mean +- 1.96 standard errors."""
    values = np.random.default_rng(2).normal(size=400)
    error = 1.96 * values.std() / 20
    assert interval(values, 4000) == pytest.approx((values.mean() - error, values.mean() + error), abs=0.02)


def test_interval_does_not_depend_on_the_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Resampling in pieces, which keeps memory flat, changes nothing."""
    whole = interval([1, 2, 4, 8], 300)
    monkeypatch.setattr("semspec.bench.statistics._CELLS", 40)
    assert interval([1, 2, 4, 8], 300) == whole


@pytest.mark.parametrize("values", [[0.5], [1.0, 1.0, 1.0]])
def test_interval_of_constant_values_is_the_value(values: list[float]) -> None:
    """One value, or equal values, give no width rather than NaN."""
    assert interval(values) == (values[0], values[0])


@dataclass
class Problem:
    id: str
    question: str
    answer: str
    kind: str = "math"


@dataclass
class Grade:
    correct: bool
    answer: str | None


def grade(output: str, gold: str) -> Grade:
    return Grade(output == gold, output)


PROBLEMS = [Problem("a", "One?", "One?"), Problem("b", "Two?", "2"), Problem("c", "Three?", "Three?")]


@dataclass
class Echo:
    """A method that answers with the question; fails when it comes to `fail_at`."""

    name: str
    log: list[tuple[str, str]] = field(default_factory=list)
    fail_at: str | None = None
    seconds: float = 0.5

    def answer(self, question: str, seed: int = 0, on_step=None) -> Answer:
        step = TraceStep("target", question, 2, p=float("nan"), seconds=0.5)
        if on_step:
            on_step(step)
        if question == self.fail_at:
            raise RuntimeError("out of memory")
        self.log.append((self.name, question))
        return Answer(question, "eos", (step,), self.seconds, 2, 2, 0)


def go(out: Path, log: list[tuple[str, str]], fail_at: str | None = None, **more) -> None:
    methods = {name: Echo(name, log, fail_at) for name in ("target", "draft")}
    runner.run(more.pop("settings", settings()), methods, PROBLEMS, out, grade=grade, **more)


def test_methods_take_turns_and_the_warm_up_is_not_counted(tmp_path: Path) -> None:
    """Each method is the first in its turn, rows are stored problem by problem, a warm-up ends before its answer."""
    log: list[tuple[str, str]] = []
    go(tmp_path, log)
    rows = read_jsonl(tmp_path / "results.jsonl")
    assert [(r["id"], r["method"]) for r in rows] == [(p, m) for p in "abc" for m in ("target", "draft")]
    assert [m for m, _ in log] == ["target", "draft", "draft", "target", "target", "draft"]
    assert sorted((r["method"], r["question"]) for r in rows) == sorted(log)
    assert [r["correct"] for r in rows[::2]] == [True, False, True]
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert summary["methods"]["target"]["pass_at_1"] == pytest.approx(2 / 3)
    assert "params_sha256" in summary["provenance"]


def test_each_repeat_has_its_own_seed_and_each_row_its_own_passes(tmp_path: Path) -> None:
    """Both methods answer a repeat with one seed; the passes of a warm-up and of other answers are in no row."""
    made: dict[str, Counter[int]] = {"draft": Counter(), "target": Counter()}
    asked: list[tuple[str, str, int]] = []

    class Working(Echo):
        def answer(self, question: str, seed: int = 0, on_step=None) -> Answer:
            made["target"] += Counter({1: 2, len(question): 1})
            made["draft"][1] += 3 * (self.name == "draft")
            if on_step is None:
                asked.append((self.name, question, seed))
            return super().answer(question, seed, on_step)

    methods = {name: Working(name) for name in ("target", "draft")}
    runner.run(settings(repeats=2), methods, PROBLEMS[1:], tmp_path, grade=grade, passes=lambda: made)
    rows = read_jsonl(tmp_path / "results.jsonl")
    places = [(p, k, m) for p in "bc" for k in (0, 1) for m in ("target", "draft")]
    assert [(r["id"], r["repeat"], r["method"]) for r in rows] == places
    assert [r["seed"] for r in rows] == [runner.answer_seed(settings().seed, p, k) for p, k, _ in places]
    assert len({r["seed"] for r in rows}) == 4
    assert sorted(asked) == sorted((r["method"], r["question"], r["seed"]) for r in rows)
    for r in rows:
        of_draft = {"draft": {"1": 3}} if r["method"] == "draft" else {}
        assert r["passes"] == of_draft | {"target": {"1": 2, str(len(r["question"])): 1}}


def test_a_killed_run_goes_on_where_it_stopped(tmp_path: Path) -> None:
    """After an error in the middle, a half-written line included, no finished answer is asked for again."""
    first: list[tuple[str, str]] = []
    with pytest.raises(RuntimeError):
        go(tmp_path, first, fail_at="Three?")
    assert len(first) == 4 and not (tmp_path / "results.jsonl").exists()
    with (tmp_path / runner.PARTIAL).open("a") as f:
        f.write('{"key": "half')
    second: list[tuple[str, str]] = []
    go(tmp_path, second)
    assert second == [("target", "Three?"), ("draft", "Three?")]
    assert [r["id"] for r in read_jsonl(tmp_path / "results.jsonl")] == list("aabbcc")
    assert not (tmp_path / runner.PARTIAL).exists()


@pytest.mark.parametrize("change", [{"settings": settings(temperature=0.5)}, {"identity": "other probes"}])
def test_other_settings_redo_everything(tmp_path: Path, change: dict) -> None:
    """Rows of a killed run with other settings or other probes are not mixed in, and wait for those settings."""
    with pytest.raises(RuntimeError):
        go(tmp_path, [], fail_at="Three?")
    log: list[tuple[str, str]] = []
    go(tmp_path, log, **change)
    assert len(log) == 6
    log.clear()
    go(tmp_path, log)
    assert len(log) == 2 and not (tmp_path / runner.PARTIAL).exists()


def test_answers_of_another_arithmetic_are_not_gone_on_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same parameters and files, but code that gives other answers: neither a killed run nor a finished one."""
    with pytest.raises(RuntimeError):
        go(tmp_path, [], fail_at="Three?")
    monkeypatch.setattr(runner, "ARITHMETIC", provenance.ARITHMETIC + 1)
    log: list[tuple[str, str]] = []
    go(tmp_path, log)
    assert len(log) == 6
    monkeypatch.setattr(runner, "ARITHMETIC", provenance.ARITHMETIC + 2)
    monkeypatch.setattr("test_metrics.PROBLEMS", [*PROBLEMS, Problem("d", "Four?", "4")])
    log.clear()
    go(tmp_path, log)
    assert len(log) == 8


def test_more_problems_keep_the_rows_of_a_killed_run(tmp_path: Path) -> None:
    """The number of problems and of resamples does not touch an answer, so it does not undo one."""
    with pytest.raises(RuntimeError):
        go(tmp_path, [], fail_at="Three?")
    log: list[tuple[str, str]] = []
    go(tmp_path, log, settings=settings(limit=50, bootstrap=300))
    assert len(log) == 2


def test_a_finished_run_is_extended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """More problems: those alone are answered, by all methods, in parts as well. The same again is measured again."""
    import sys

    here = sys.modules[__name__]
    monkeypatch.setattr(here, "PROBLEMS", PROBLEMS[:1])
    monkeypatch.setattr("semspec.provenance.place", lambda: "another machine, cores: 1, commit ?")
    go(tmp_path, [])
    monkeypatch.undo()
    log: list[tuple[str, str]] = []
    go(tmp_path, log, part=(2, 2))
    assert {q for _, q in log} == {"Two?"}
    go(tmp_path, log)
    assert len(log) == 4 and not [q for _, q in log if q == "One?"]
    assert [r["id"] for r in read_jsonl(tmp_path / "results.jsonl")] == list("aabbcc")
    made_on = read_json(tmp_path / "summary.json")["provenance"]["made_on"]
    assert made_on == {"another machine, cores: 1, commit ?": 2, provenance.place(): 4}
    log.clear()
    go(tmp_path, log)
    assert len(log) == 6
    three = {name: Echo(name, log) for name in ("target", "draft", "semantic")}
    log.clear()
    runner.run(settings(), three, PROBLEMS, tmp_path, grade=grade)
    assert len(log) == 9, "methods that are compared are measured together"


def test_fewer_problems_leave_the_others_for_when_they_are_asked_for_again(tmp_path: Path, capsys) -> None:
    """What is asked for is measured again, twice; then the rest is there still, and said to be."""
    import sys

    here, log = sys.modules[__name__], []
    go(tmp_path, [])
    before = [runner.untimed(r) for r in read_jsonl(tmp_path / "results.jsonl")]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(here, "PROBLEMS", PROBLEMS[:1])
        for _ in range(2):
            log.clear()
            go(tmp_path, log)
            assert [q for _, q in log] == ["One?"] * 2
            assert [r["id"] for r in read_jsonl(tmp_path / "results.jsonl")] == list("aa")
    lines = len((tmp_path / runner.PARTIAL).read_text().splitlines())
    log.clear()
    capsys.readouterr()
    go(tmp_path, log)
    assert lines == 4 and log == [] and "bench: 6 of 6 answers are already there" in capsys.readouterr().err
    assert [runner.untimed(r) for r in read_jsonl(tmp_path / "results.jsonl")] == before
    assert not (tmp_path / runner.PARTIAL).exists()


def test_what_was_put_aside_is_not_mixed_with_methods_that_were_not_measured_beside_it(tmp_path: Path) -> None:
    import sys

    go(tmp_path, [])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys.modules[__name__], "PROBLEMS", PROBLEMS[:1])
        go(tmp_path, [])
    log: list[tuple[str, str]] = []
    three = {name: Echo(name, log) for name in ("target", "draft", "semantic")}
    runner.run(settings(), three, PROBLEMS, tmp_path, grade=grade)
    assert len(log) == 9


def asked_of(tmp_path: Path, names: str, n: int, fail_at: str = "", seconds: float = 0.5) -> list[tuple[str, str]]:
    """What a bench of the methods t(arget), d(raft), s(emantic) asks on the first `n` problems."""
    log: list[tuple[str, str]] = []
    long = {"t": "target", "d": "draft", "s": "semantic"}
    methods = {long[name]: Echo(long[name], log, fail_at, seconds) for name in names}
    with suppress(RuntimeError):
        runner.run(settings(), methods, PROBLEMS[:n], tmp_path, grade=grade)
    return log


def test_other_methods_on_fewer_problems_leave_the_rest_alone(tmp_path: Path) -> None:
    """What was measured together and is not asked for waits, whoever is measured in between."""
    asked_of(tmp_path, "td", 3)
    asked_of(tmp_path, "td", 1)
    assert len(asked_of(tmp_path, "ts", 1)) == 2
    assert {question for _, question in asked_of(tmp_path, "td", 3)} == {"One?"}
    assert len(asked_of(tmp_path, "tds", 1)) == 3
    assert asked_of(tmp_path, "td", 3) == [], "three were measured together, two of them are asked for"


def test_a_killed_run_of_other_methods_is_not_mixed_in(tmp_path: Path) -> None:
    """Neither with what was put aside nor with a run of its own: target and draft were measured together, or are."""
    asked_of(tmp_path, "td", 3, seconds=1.0)
    asked_of(tmp_path, "td", 1, seconds=2.0)
    asked_of(tmp_path, "ts", 3, fail_at="Three?", seconds=3.0)
    assert asked_of(tmp_path, "td", 3, seconds=4.0) == []
    found = [(r["id"], r["latency_s"]) for r in read_jsonl(tmp_path / "results.jsonl")]
    assert found == [("a", 2.0)] * 2 + [("b", 1.0)] * 2 + [("c", 1.0)] * 2
    other = tmp_path / "other"
    asked_of(other, "ts", 3, fail_at="Three?")
    assert len(asked_of(other, "td", 3)) == 6


def test_an_extended_run_that_is_killed_at_its_end_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The old summary goes before the new answers are written, and then the old answers are still known."""
    import sys

    monkeypatch.setattr(sys.modules[__name__], "PROBLEMS", PROBLEMS[:2])
    go(tmp_path, [])
    monkeypatch.undo()
    with monkeypatch.context() as patch:
        patch.setattr(runner, "write_jsonl", lambda *_: pytest.fail("the disk is full"))
        with pytest.raises(pytest.fail.Exception):
            go(tmp_path, [])
    log: list[tuple[str, str]] = []
    go(tmp_path, log)
    assert log == [] and len(read_jsonl(tmp_path / "results.jsonl")) == 6


def test_what_an_extended_run_had_taken_over_is_measured_again_where_that_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed while it was extended, and then run as it was before."""
    import sys

    here = sys.modules[__name__]
    with monkeypatch.context() as patch:
        patch.setattr(here, "PROBLEMS", PROBLEMS[:2])
        go(tmp_path, [])
    with pytest.raises(RuntimeError):
        go(tmp_path, [], fail_at="Three?")
    log: list[tuple[str, str]] = []
    monkeypatch.setattr(here, "PROBLEMS", PROBLEMS[:2])
    go(tmp_path, log)
    assert len(log) == 4


def test_what_was_begun_anew_is_not_mixed_into_an_extended_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A finished run that was being measured again and was killed: more problems, and it is one measurement still."""
    import sys

    monkeypatch.setattr(sys.modules[__name__], "PROBLEMS", PROBLEMS[:2])
    go(tmp_path, [])
    monkeypatch.setattr("semspec.provenance.place", lambda: "another machine, cores: 1, commit ?")
    with pytest.raises(RuntimeError):
        go(tmp_path, [], fail_at="Two?")
    monkeypatch.undo()
    go(tmp_path, [])
    assert read_json(tmp_path / "summary.json")["provenance"]["made_on"] == {provenance.place(): 6}


@pytest.mark.parametrize("torn", ["results.jsonl", "graded.jsonl", "summary.json"])
def test_a_summary_never_speaks_of_other_answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, torn: str) -> None:
    """The disk is full while a second run is written over a first: what is left is no finished comparison."""
    go(tmp_path, [])

    def full(real: Callable) -> Callable:
        def write(path: Path, value: object) -> None:
            if path.name == torn:
                raise OSError("no space left")
            real(path, value)

        return write

    for name in ("write_jsonl", "write_json"):
        monkeypatch.setattr(runner, name, full(getattr(runner, name)))
    with pytest.raises(OSError, match="no space"):
        go(tmp_path, [], settings=settings(temperature=0.5))
    monkeypatch.undo()
    with pytest.raises(UserError):
        runner.read(tmp_path)
    log: list[tuple[str, str]] = []
    go(tmp_path, log, settings=settings(temperature=0.5))
    assert log == []


def test_a_row_of_somebody_else_is_not_known(tmp_path: Path) -> None:
    go(tmp_path, [])
    rows = read_jsonl(tmp_path / "results.jsonl")
    del rows[0]["question"]
    runner.write_jsonl(tmp_path / "results.jsonl", rows)
    log: list[tuple[str, str]] = []
    go(tmp_path, log)
    assert log == [("target", "One?"), ("draft", "One?")]


def first_of_each(plan: list[tuple[int, int, str]], n_methods: int) -> list[str]:
    assert len({(i, r, m) for i, r, m in plan}) == len(plan)
    return [name for _, _, name in plan[::n_methods]]


@pytest.mark.parametrize("parts", [1, 2, 3])
def test_every_method_comes_first_in_every_part(parts: int) -> None:
    for k in range(1, parts + 1):
        plan = runner.turns(12, 1, "ab", (k, parts))
        assert {i for i, _, _ in plan} == set(range(k - 1, 12, parts))
        first = first_of_each(plan, 2)
        assert first.count("a") == first.count("b")


@pytest.mark.parametrize(("parts", "repeats"), [(1, 1), (2, 1), (2, 2), (5, 1), (24, 1)])
def test_every_method_comes_first_as_often_as_can_be(parts: int, repeats: int) -> None:
    """With 2 parts of 12 problems each and 15 methods too, whose rotations must not begin alike."""
    methods = "abcdefghijklmno"
    each = [first_of_each(runner.turns(24, repeats, methods, (k, parts)), 15) for k in range(1, parts + 1)]
    often = Counter(name for first in each for name in first)
    assert set(often) == set(methods) and max(often.values()) - min(often.values()) <= 1
    assert all(max(Counter(first).values()) <= -(-len(first) // 15) for first in each)


def test_two_problems_of_one_id_are_refused(tmp_path: Path) -> None:
    """Metrics pair on the id, so an id that comes twice is the user's mistake, said before anything runs."""
    with pytest.raises(UserError, match="'a' comes twice"):
        runner.run(settings(), {"target": Echo("target")}, PROBLEMS[:1] * 2, tmp_path, grade=grade)


def test_the_grader_follows_the_kind_of_the_problem(tmp_path: Path) -> None:
    """A choice is graded by its letter or its words, and its row says in which order the options were shown."""
    from semspec import problems

    shown = ("iron", "one?")
    chosen = [problems.Problem(i, i, "B", "math", "choice", shown, "BA") for i in ("Answer: B", "Answer: A", "One?")]
    math = problems.Problem("m", "One is 1.0", "1")
    runner.run(settings(), {"target": Echo("target")}, [*chosen, math], tmp_path)
    rows = read_jsonl(tmp_path / "results.jsonl")
    assert [(r["answer"], r["correct"], r.get("order")) for r in rows] == [
        ("B", True, "BA"),
        ("A", False, "BA"),
        ("B", True, "BA"),
        ("1.0", True, None),
    ]


def test_graded_rows_hold_no_time_and_no_nan(tmp_path: Path) -> None:
    """graded.jsonl is the part that two equal runs share, and NaN is written as null."""
    go(tmp_path, [])
    (first, *_) = read_jsonl(tmp_path / "graded.jsonl")
    assert "latency_s" not in first and "seconds" not in first["trace"][0]
    assert first["trace"][0]["p"] is None


def test_answer_seed_depends_on_problem_and_repeat_only() -> None:
    """Seeds differ between problems, repeats and runs, and are the same in every process."""
    seeds = {runner.answer_seed(s, p, r) for s in (0, 1) for p in "ab" for r in (0, 1)}
    assert len(seeds) == 8
    assert runner.answer_seed(0, "a") == 1806043053


def test_parts_answer_every_problem_once_and_merge_to_the_same_bytes(tmp_path: Path) -> None:
    """All methods of a problem run in one part; a killed part goes on; the whole run then asks no model again."""
    go(tmp_path / "alone", [])
    logs: list[list[tuple[str, str]]] = [[], [], []]
    out = tmp_path / "parts"
    with pytest.raises(RuntimeError):
        go(out, logs[0], fail_at="Three?", part=(1, 2))
    go(out, logs[1], part=(2, 2))
    assert not (out / "results.jsonl").exists()
    go(out, logs[2], part=(1, 2))
    assert [sorted({q for _, q in log}) for log in logs] == [["One?"], ["Two?"], ["Three?"]]
    assert all(len(log) == 2 for log in logs)
    merged: list[tuple[str, str]] = []
    go(out, merged)
    assert merged == []
    assert (out / "graded.jsonl").read_bytes() == (tmp_path / "alone/graded.jsonl").read_bytes()
    assert not list(out.glob("*.partial*"))


@pytest.mark.parametrize(
    "summary",
    [
        {},
        {"methods": {}},
        {"methods": {"target": {}}},
        {"methods": {"target": {"n": 1}, "draft": [1]}},
        {"methods": {"target": {"n": 1}, "draft": {"n": 1, "pass_at_1": "half"}}},
        {"methods": {"target": {"n": 1}, "draft": {"n": 1}}, "provenance": ["x"]},
    ],
)
def test_what_is_no_finished_comparison_is_refused(tmp_path: Path, summary: object) -> None:
    """A summary of another kind, or of other methods than the rows have, is no traceback."""
    go(tmp_path, [])
    assert set(runner.read(tmp_path)[1]["methods"]) == {"target", "draft"}
    (tmp_path / "summary.json").write_text(json.dumps(summary))
    with pytest.raises(UserError, match="no finished comparison"):
        runner.read(tmp_path)

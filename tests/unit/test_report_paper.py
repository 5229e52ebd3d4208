"""The paper's tables: which of our runs fills which row, and that its numbers and ours stay apart."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import fake_results as fake
import pytest

from semspec.errors import UserError
from semspec.files import read_json, write_json
from semspec.report import paper, published
from semspec.report.page import build
from semspec.schema import Settings


def filled(layout: published.Layout, dataset: str, settings=None) -> list[dict[str, str]]:
    """The rows of a filled layout, as its CSV has them."""
    table = paper.fill(layout, [paper.Run("results/mine", "a → b", dataset, fake.METHODS, settings)]).table()
    return list(csv.DictReader(io.StringIO(table.csv())))


def test_the_papers_numbers_and_ours_stay_apart() -> None:
    """A set that the paper uses fills its columns; what was not run says so in every cell."""
    rows = filled(published.TABLE_4, "math500")
    theirs = {(r["Source"], r["Row"]): r for r in rows if r["Source"].startswith("The paper")}
    ours = {r["Row"]: r for r in rows if r["Source"] == "This run: a → b"}
    assert len(theirs) == 12 and set(ours) == set(published.TABLE_4.rows)
    assert theirs[(f"The paper: {published.QWQ}", "SemanticSpec")]["Math-500 Pass@1"] == "0.9217"
    assert theirs[(f"The paper: {published.R1}", "SpecReason")]["GPQA-D Latency"] == "159.33"
    assert ours["SemanticSpec"]["Math-500 Latency"] == "7.25" and ours["SemanticSpec"]["AMC23 TPS"] == paper.NOT_RUN
    unmeasured = [ours[m] for m in ("Target Model", "SpecReason", "SpecThinking", "SpecSampling")]
    assert {v for r in unmeasured for k, v in r.items() if k not in ("Source", "Row")} == {paper.NOT_RUN}


@pytest.mark.parametrize(("dataset", "column"), [("amc23", "AMC23"), ("aime24", "AIME24"), ("gpqa_diamond", "GPQA-D")])
def test_every_set_of_the_paper_fills_its_own_column(dataset: str, column: str) -> None:
    row = next(
        r for r in filled(published.TABLE_4, dataset) if r["Row"] == "Draft Model" and r["Source"] == "This run: a → b"
    )
    assert row[f"{column} TPS"] == "30.00" and f"{dataset} TPS" not in row


def changed(**sections: dict) -> Settings:
    """The settings with other values in some sections."""
    base = fake.settings()
    return base.model_copy(update={s: getattr(base, s).model_copy(update=values) for s, values in sections.items()})


def table_1(methods: list[str], settings: Settings) -> tuple[dict[str, str], str]:
    """{row: Pass@1} of our block of Table 1, and what is said of the run; method i of the run has Pass@1 i / 10."""
    numbers = {m: fake.METHODS["semantic"] | {"pass_at_1": i / 10} for i, m in enumerate(methods)}
    filled = paper.fill(published.TABLE_1, [paper.Run("results/mine", "a → b", "gsm8k", numbers, settings)])
    ours = {row: cells[-4] for row, cells in filled.blocks[-1].rows}
    return ours, dict(filled.notes).get("This run", "")


def test_table_1_says_by_which_rule_and_features_its_rows_were_made() -> None:
    """Not the paper's rule: that is said, and the paper's own, where the run has it, is named with its numbers."""
    settings = changed(decide={"rule": "joint", "threshold": 0.3})
    drawn = "semantic@rule=ratio+threshold=null"
    rows, said = table_1(["semantic_random", "semantic_last_hidden", "semantic", drawn], settings)
    assert rows == {"Random": "0.000", "Last-hidden": "0.100", "SemanticSpec": "0.200"}
    assert "hidden states and statistics of the steps' log-probabilities (train.features: both, " in said
    assert (
        "SemanticSpec is `semantic`: a drafted step is kept where min(1, the joint predictor's) is at least 0.3" in said
    )
    assert said.count("decide.rule: joint, not the paper's rule") == 2
    assert f"`{drawn}`, Pass@1 0.300, TPS 20.00, Latency 7.25, Ratio –." in said
    assert "own rule" not in table_1(["semantic_random", "semantic"], settings)[1]
    notes = dict(published.TABLE_1.notes)
    assert "min(1, p / q)" in notes["Random"] and "Of the hidden states" in notes["Last-hidden"]


@pytest.mark.parametrize("last", ["semantic_last_hidden@rule=ratio+threshold=null", None])
def test_table_1_takes_the_papers_rule_where_all_its_rows_have_it(last: str | None) -> None:
    """Then all rows draw by min(1, p / q), and differ in the predictor alone."""
    settings = changed(decide={"rule": "joint", "threshold": 0.3}, train={"features": "hidden"})
    names = ["semantic_random", "semantic", "semantic@rule=ratio+threshold=null"]
    rows, said = table_1([*names, *(["semantic_last_hidden", last] if last else [])], settings)
    assert rows == {"Random": "0.000", "SemanticSpec": "0.200", "Last-hidden": "0.400" if last else paper.NOT_RUN}
    assert "SemanticSpec is `semantic@rule=ratio+threshold=null`" in said and "(the paper's rule)" in said
    assert "not the paper's rule" not in said and "hidden states alone (train.features: hidden" in said


@pytest.mark.parametrize(
    ("engine", "known", "fills"),
    [
        ({}, True, True),
        ({}, False, False),
        ({"kind": "llamacpp"}, True, False),
        ({"draft": {"kind": "llamacpp"}}, True, False),
        ({"kind": "sglang"}, True, False),
        ({"kind": "sglang", "draft": {"kind": "transformers"}, "target": {"kind": "transformers"}}, True, True),
    ],
)
def test_table_3_is_of_transformers_alone(engine: dict, known: bool, fills: bool) -> None:
    """A run in which another engine ran either model leaves it empty, and fills Table 4 all the same."""
    settings = Settings.model_validate(fake.settings().model_dump() | {"engine": engine}) if known else None
    cells = [
        {r["Math-500 TPS"] for r in filled(layout, "math500", settings) if r["Source"].startswith("This run")}
        for layout in (published.TABLE_3, published.TABLE_4)
    ]
    assert cells == [{"30.00", "20.00", "not run"} if fills else {"not run"}, {"30.00", "20.00", "not run"}]


@pytest.mark.parametrize(
    ("trained", "asked", "rows"),
    [
        ("s1k:math", "aime24", {"Within-domain": "semantic"}),
        ("s1k:science", "gpqa_diamond", {"Within-domain": "semantic"}),
        ("gsm_symbolic", "math500", {"Within-domain": "semantic"}),  # the paper's domain is mathematics, of any level
        ("s1k:science", "math500", {"Cross-domain": "semantic"}),
        ("s1k", "math500", {}),
        ("mine.jsonl", "mine.jsonl", {}),
    ],
)
def test_within_domain_is_the_same_domain(trained: str, asked: str, rows: dict[str, str]) -> None:
    """By the parameters; and by what the run itself says of its probes, where it does, whatever the parameters are."""
    settings = changed(contexts={"dataset": trained})
    assert paper.which(published.TABLE_2, paper.Run("results/mine", "a → b", asked, fake.METHODS, settings)) == rows
    run = paper.Run("results/mine", "a → b", asked, fake.METHODS, changed(), trained={"semantic": trained})
    assert paper.which(published.TABLE_2, run) == rows
    said = dict(paper.fill(published.TABLE_2, [run]).notes)["This run"]
    assert f"were trained on {trained} (" in said and f"those of {asked} (" in said


@pytest.mark.parametrize(
    ("own", "cross", "within", "across"),
    [
        ("s1k:math", "s1k:science", "semantic", "semantic_cross_domain"),
        ("s1k:math", "gsm8k", "semantic", None),  # other problems, the same domain
        ("s1k:science", "s1k:math", "semantic_cross_domain", "semantic"),
        ("s1k:math", None, "semantic", None),  # nothing says what they were trained on
    ],
)
def test_cross_domain_is_another_domain(own: str, cross: str | None, within: str, across: str | None) -> None:
    """semantic_cross_domain has a row only where its probes are known to be of the domain that the row is about."""
    trained = {"semantic": own} | ({"semantic_cross_domain": cross} if cross else {})
    methods = fake.METHODS | {"semantic_cross_domain": fake.METHODS["semantic"]}
    run = paper.Run("results/mine", "a → b", "math500", methods, changed(), trained=trained)
    expected = {"Within-domain": within, "Cross-domain": across}
    assert paper.which(published.TABLE_2, run) == {row: m for row, m in expected.items() if m}
    said = dict(paper.fill(published.TABLE_2, [run]).notes)["This run"]
    assert ("`semantic_cross_domain` were trained on is not recorded" in said) == (cross is None)


@pytest.mark.usefixtures("no_drawing")
def test_the_page_takes_the_probes_domain_from_the_run(tmp_path: Path) -> None:
    """From the summary's provenance, before the parameters."""
    fake.page(tmp_path)
    summary = read_json(tmp_path / "results/bench/summary.json")
    summary["provenance"] |= {"dataset": "math500", "probes": {"semantic": {"domain": "s1k:science", "sha256": "ab"}}}
    write_json(tmp_path / "results/bench/summary.json", summary)
    build(fake.settings(), tmp_path)
    text = (tmp_path / "results/report/tables/paper_table2.md").read_text(encoding="utf-8")
    assert "The probes of `semantic` were trained on s1k:science (science)" in text


def test_a_set_of_our_own_is_one_more_group_that_the_paper_leaves_empty() -> None:
    """gsm_symbolic fills none of the paper's columns."""
    rows = filled(published.TABLE_4, "gsm_symbolic")
    assert {r["gsm_symbolic Pass@1"] for r in rows if r["Source"].startswith("The paper")} == {"–"}
    ours = {r["Row"]: r for r in rows if r["Source"].startswith("This run")}
    assert ours["Draft Model"]["gsm_symbolic TPS"] == "30.00" and ours["Draft Model"]["Math-500 TPS"] == paper.NOT_RUN


@pytest.mark.parametrize(
    ("layout", "change", "row"),
    [
        (published.TABLE_1, {}, "SemanticSpec"),
        (published.TABLE_1, {"train": {"layers": "last"}}, "Last-hidden"),
        (published.TABLE_2, {}, "Within-domain"),
        (published.TABLE_2, {"contexts": {"dataset": "mine.jsonl"}}, None),
        (published.FIGURE_4, {"bench": {"gamma": 2}}, "γ = 2"),
        (published.FIGURE_4, {"bench": {"gamma": 5}}, None),
        (published.FIGURE_5, {"text": {"split": "sentence"}}, "sentence end"),
    ],
)
def test_settings_say_which_row_a_run_fills(layout: published.Layout, change: dict, row: str | None) -> None:
    """The one row whose setting the run had has numbers; none has where the settings are not known."""
    settings = fake.settings()
    for section, values in change.items():
        settings = settings.model_copy(update={section: getattr(settings, section).model_copy(update=values)})
    for known, expected in ((settings, {row} - {None}), (None, set())):
        rows = [r for r in filled(layout, "gsm8k", known) if r["Source"].startswith("This run")]
        assert {r["Row"] for r in rows if r["gsm8k Pass@1"] == "0.500"} == expected
        assert all(r["gsm8k Pass@1"] in ("0.500", paper.NOT_RUN) for r in rows)


@pytest.mark.usefixtures("no_drawing")
def test_figures_4_and_5_are_drawn_where_there_are_two_points(tmp_path: Path) -> None:
    """Two γ give the picture; one split gives none, and that is said."""
    semantic = [r for r in fake.rows() if r["method"] == "semantic"]
    html = fake.page(tmp_path, [*fake.rows(), *(r | {"method": "semantic@gamma=3"} for r in semantic)])
    assert '<svg id="paper_figure4">' in html and "paper_figure5" not in html
    assert "Figure 5: where a step ends: no picture; not run with two of them on one problem set." in html


def test_runs_beside_fill_what_the_first_lacks() -> None:
    """Another split's row, another set's columns; where two runs have a cell, the first gives it; notes say which."""
    base = fake.settings()
    blank, sentence = (
        base.model_copy(update={"text": base.text.model_copy(update={"split": split})})
        for split in ("blank_line", "sentence")
    )
    better = {"semantic": fake.METHODS["semantic"] | {"pass_at_1": 0.75}}
    runs = [
        paper.Run("results/a", "a → b", "gsm8k", fake.METHODS, blank),
        paper.Run("results/b", "a → b", "gsm8k", better, sentence, "8 problems"),
        paper.Run("results/c", "a → b", "math500", better, blank),
        paper.Run("results/d", "a → b", "gsm8k", better, blank),
    ]
    filled = paper.fill(published.FIGURE_5, runs)
    table = filled.table()
    ours = [r for r in csv.DictReader(io.StringIO(table.csv())) if r["Source"] == "These runs: a → b"]
    assert {r["Row"]: (r["gsm8k Pass@1"], r["Math-500 Pass@1"]) for r in ours} == {
        "blank line": ("0.500", "0.750"),
        "sentence end": ("0.750", paper.NOT_RUN),
    }
    told = dict(filled.notes)
    assert "results/d" not in told and told["results/b"] == "gsm8k: sentence end (8 problems)."
    told = dict(paper.fill(published.TABLE_3, runs).notes)
    assert told["results/a"].startswith("gsm8k: Draft Model, SemanticSpec (")  # rows of this table, in its order
    assert paper.plane(paper.fill(published.TABLE_4, runs))[-1][1]["Math-500"] == {"SemanticSpec": (7.25, 0.75)}


@pytest.mark.usefixtures("no_drawing")
def test_a_run_of_another_pair_is_no_run_beside(tmp_path: Path) -> None:
    """One line says whose it is; a folder without a comparison is told as everywhere."""
    fake.page(tmp_path)
    for name, draft in (("same", "tiny-draft"), ("other", "huge-draft")):
        fake.write_bench(tmp_path / name, fake.rows(2))
        summary = read_json(tmp_path / name / "results/bench/summary.json")
        summary["provenance"] |= {"draft": draft, "target": "tiny-target", "dataset": "math500"}
        write_json(tmp_path / name / "results/bench/summary.json", summary)
    folders = {name: tmp_path / name / "results/bench" for name in ("same", "other")}
    path = build(fake.settings(), tmp_path, others=[folders["same"], tmp_path / "same/../same/results/bench"])
    html = path.read_text(encoding="utf-8")
    assert "These runs: tiny-draft → tiny-target" in html
    assert "Math-500: Draft Model, Target Model, SemanticSpec (2 problems, its params.yaml is not there" in html
    only = build(fake.settings(), tmp_path, others=[tmp_path / "results/bench"]).read_text(encoding="utf-8")
    assert "This run: tiny-draft → tiny-target" in only
    with pytest.raises(UserError, match="huge-draft → tiny-target, this report is on tiny-draft → tiny-target"):
        build(fake.settings(), tmp_path, others=[folders["other"]])
    with pytest.raises(UserError):
        build(fake.settings(), tmp_path, others=[tmp_path / "none"])


def test_every_published_row_has_a_number_for_each_column() -> None:
    """No number of the paper was dropped or doubled; rows named are rows of the layout."""
    for layout in published.LAYOUTS:
        for numbers in layout.published.values():
            assert set(numbers) <= set(layout.rows)
            assert {len(v) for v in numbers.values()} <= {len(layout.benchmarks) * len(layout.metrics)}

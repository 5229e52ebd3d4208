"""The report: what the page says, what it escapes, and that it stands alone."""

from __future__ import annotations

import csv
import io
import re
from html.parser import HTMLParser
from pathlib import Path

import fake_results as fake
import numpy as np
import pytest
from matplotlib import pyplot
from rich.console import Console

from semspec.bench.metrics import METRICS, summarize
from semspec.errors import UserError
from semspec.report import figures, tables
from semspec.report.page import build, headline, worked_problem


@pytest.fixture
def no_drawing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Figures are made but not drawn, for tests that look at words."""

    def save(figure, folder: Path, name: str) -> str:
        pyplot.close(figure)
        return f'<svg id="{name}"></svg>'

    monkeypatch.setattr(figures, "save", save)


@pytest.fixture(scope="module")
def drawn(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A fake project with every figure drawn."""
    root = tmp_path_factory.mktemp("drawn")
    page(root, metrics=fake.probe_metrics())
    return root


def page(root: Path, results=None, metrics=None, contexts: int = 1) -> str:
    """The page of a fake project; `metrics` None leaves every probe file out."""
    fake.write_bench(root, fake.rows() if results is None else results)
    if metrics is not None:
        fake.write_probes(root, metrics, contexts)
    return build(fake.settings(), root).read_text(encoding="utf-8")


def test_the_page_stands_alone_and_is_well_formed(drawn: Path) -> None:
    """No address outside the file is fetched, no script runs, ids are unique, and every element is closed."""
    html = (drawn / "results/report/index.html").read_text(encoding="utf-8")
    assert "<script" not in html and "<link" not in html and "@import" not in html
    assert not re.findall(r'(?:src|href)="(?!#|data:)[^"]*"', html)
    ids = re.findall(r'\bid="([^"]+)"', html)
    assert len(ids) == len(set(ids))
    assert not set(re.findall(r'(?:href="#|url\(#)([^")]+)', html)) - set(ids)

    void, open_tags = {"meta", "br", "hr", "img", "input", "link"}, []

    class Check(HTMLParser):
        def handle_starttag(self, tag, attrs):
            if tag not in void:
                open_tags.append(tag)

        def handle_startendtag(self, tag, attrs):
            pass

        def handle_endtag(self, tag):
            assert open_tags.pop() == tag

    Check().feed(html)
    assert not open_tags


def test_tables_and_figures_are_written_beside_the_page(drawn: Path) -> None:
    """Every table is there as Markdown and CSV, every figure as SVG and PNG."""
    out = drawn / "results/report"
    names = {"results", "provenance", "probe_draft", "probe_target", "decision"}
    assert {p.name for p in (out / "tables").iterdir()} == {n + s for n in names for s in (".md", ".csv")}
    shapes = {
        "quality_speed",
        "phases",
        "tradeoff",
        "reliability_draft",
        "reliability_target",
        "training",
        "hidden_states",
        "ratios",
    }
    assert {p.name for p in (out / "figures").iterdir()} == {n + s for n in shapes for s in (".svg", ".png")}


@pytest.mark.usefixtures("no_drawing")
def test_text_of_models_and_problems_is_escaped(tmp_path: Path) -> None:
    """A <script> in a question, a step, a rejected draft or an answer reaches the page as text."""
    evil = "<script>alert(1)</script><img src=x onerror=alert(1)>"
    step = fake.step("target", evil, p=0.1, q=0.9, u=0.5, accepted=False, rejected_text=evil)
    row = fake.row(0, "semantic", trace=[step], question=evil, answer=evil, gold=evil, id=evil)
    html = page(tmp_path, [fake.row(0, "target", id=evil, trace=[]), row])
    assert "<script" not in html and "<img" not in html
    assert html.count("&lt;script&gt;") == 6


@pytest.mark.parametrize("failing", [[], ["draft"], ["target"], ["decision"], ["draft", "target", "decision"]])
@pytest.mark.usefixtures("no_drawing")
def test_a_red_box_for_each_part_that_does_not_beat_its_baselines(tmp_path: Path, failing: list[str]) -> None:
    """Exactly the failing probes, and the decision, get a warning, with their numbers in it."""
    html = page(tmp_path, metrics=fake.probe_metrics(**dict.fromkeys(failing, False)))
    boxes = re.findall(r'<div class="warn".*?</div>', html, flags=re.S)
    assert len(boxes) == len(failing)
    for box, part in zip(boxes, failing, strict=True):
        assert part in box and "does not beat its baselines" in box and "0.300" in box


@pytest.mark.usefixtures("no_drawing")
def test_an_undecided_decision_is_no_warning(tmp_path: Path) -> None:
    """With labels that cannot tell, the page says so in plain text."""
    html = page(tmp_path, metrics=fake.probe_metrics(decision=None))
    assert 'class="warn"' not in html and "cannot be told with these labels" in html


@pytest.mark.usefixtures("no_drawing")
def test_a_run_without_probes_says_what_is_missing(tmp_path: Path) -> None:
    """Target and draft alone give a page whose probe sections name what did not run."""
    html = page(tmp_path, [r for r in fake.rows() if r["method"] != "semantic"])
    assert "No probes were trained" in html and "No map:" in html and "No draft step was judged" in html
    assert "draft: " in headline(summarize([r for r in fake.rows() if r["method"] != "semantic"], 200))[0]


@pytest.mark.parametrize("name", ["target", "semantic"])
@pytest.mark.usefixtures("no_drawing")
def test_one_method_and_one_problem_are_enough(tmp_path: Path, name: str) -> None:
    """The smallest comparison there is still gives a page."""
    assert "1 problem;" in page(tmp_path, [r for r in fake.rows(1) if r["method"] == name])


@pytest.mark.usefixtures("no_drawing")
def test_without_a_comparison_the_user_is_told(tmp_path: Path) -> None:
    """No results, no report, and one line that says what to run."""
    with pytest.raises(UserError, match=r"results\.jsonl is missing"):
        build(fake.settings(), tmp_path)


def test_the_headline_is_built_from_the_numbers() -> None:
    """Speed-up, its interval and the difference in points are in the first line, a caveat in the last."""
    methods = {
        "target": {
            "n": 60,
            "speedup": 1.0,
            "speedup_ci": [1, 1],
            "pass_at_1_diff": 0.0,
            "pass_at_1_diff_ci": [0, 0],
        },
        "semantic": {
            "n": 60,
            "speedup": 1.42,
            "speedup_ci": [1.2, 1.7],
            "pass_at_1_diff": -0.02,
            "pass_at_1_diff_ci": [-0.09, 0.05],
        },
    }
    first, last = headline(methods)
    assert first == "semantic: 1.42x [1.20, 1.70] the speed of the target at -2 points Pass@1 [-9, +5]."
    assert "includes 0" in last and "includes 1" not in last and "60 problems." in last


def test_the_worked_problem_shows_both_verdicts_if_any_does() -> None:
    """An answer with an accepted and a rejected step is preferred to longer ones with one verdict."""
    yes, no = fake.step("draft", "a", accepted=True), fake.step("target", "b", accepted=False)
    rows = [fake.row(0, "m", trace=[yes] * 9), fake.row(1, "m", trace=[yes, no]), fake.row(2, "m", trace=[])]
    assert worked_problem(rows)["id"] == "p1"
    assert worked_problem([]) is None


def test_equal_inputs_give_equal_bytes(drawn: Path, tmp_path: Path) -> None:
    """Two builds of the same project agree in every file."""
    page(tmp_path, metrics=fake.probe_metrics())
    one, two = ({p.name: p.read_bytes() for p in (r / "results/report").rglob("*.*")} for r in (drawn, tmp_path))
    assert one == two and len(one) == 27


def test_map_of_few_states_is_principal_components() -> None:
    """Under 15 states the projection is PCA and keeps all of a planar cloud's distances."""
    rng = np.random.default_rng(0)
    flat = rng.normal(size=(9, 2)) @ rng.normal(size=(2, 30))
    points, axis = figures.project(flat, seed=0)
    assert axis == "PCA"
    assert np.linalg.norm(points[0] - points[5]) == pytest.approx(np.linalg.norm(flat[0] - flat[5]))


def test_results_csv_holds_unrounded_values() -> None:
    """The CSV has one line per method, its numbers in full, intervals in two columns."""
    summary = {"methods": summarize(fake.rows(), 200)}
    table = list(csv.DictReader(io.StringIO(tables.results(summary).csv())))
    assert [r["method"] for r in table] == ["target", "draft", "semantic"]
    assert float(table[2]["speedup"]) == summary["methods"]["semantic"]["speedup"]
    assert float(table[2]["speedup_ci_high"]) == summary["methods"]["semantic"]["speedup_ci"][1]


def test_markdown_tables_keep_their_columns() -> None:
    """A bar in a cell does not split it."""
    text = tables.Table("t", "T", ["a", "b"], [["x|y", "z"]]).markdown()
    assert "| x\\|y | z |" in text


def test_terminal_table_names_every_defined_metric() -> None:
    """The terminal table fits 80 columns and leaves out only metrics that no method has."""
    everything, target = (
        terminal([r for r in fake.rows() if r["method"] in names])
        for names in (("target", "draft", "semantic"), ("target",))
    )
    assert all(m.title.split()[0] in everything for m in METRICS)
    assert max(len(line) for line in everything.splitlines()) <= 80
    assert "1.47x" in everything and "Acceptance rate" not in target


def terminal(rows: list[dict]) -> str:
    console = Console(width=80, file=io.StringIO())
    console.print(tables.render_table({"methods": summarize(rows, 200)}))
    return console.file.getvalue()

"""The report: what the page says, what it escapes, and that it stands alone."""

from __future__ import annotations

import csv
import io
import re
import sys
from html.parser import HTMLParser
from pathlib import Path
from types import SimpleNamespace

import fake_results as fake
import numpy as np
import pandas as pd
import pytest
from matplotlib import pyplot
from rich.console import Console

from semspec.bench.metrics import BY_KEY, METRICS, pareto, summarize
from semspec.bench.statistics import ratio_interval
from semspec.cli import main
from semspec.errors import UserError
from semspec.files import read_json, write_json, write_jsonl
from semspec.report import figures, paper, problems, published, salvage, tables
from semspec.report.page import build, evenly, headline, subtitle, worked_problem
from semspec.schema import Settings


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
    """No address outside the report is named, no script runs, ids are unique, and every element is closed."""
    out = drawn / "results/report"
    pages = sorted((out / "problems").iterdir())
    assert len(pages) == 12
    check_page(out / "index.html", links=12)
    check_page(pages[0], links=2)


def check_page(path: Path, links: int) -> None:
    """`links` links lead to other pages, all of which are there; nothing else is fetched."""
    html = path.read_text(encoding="utf-8")
    assert "<script" not in html and "<link" not in html and "@import" not in html
    assert not re.findall(r'src="', html)
    away = re.findall(r'href="(?!#|data:)([^"]*)"', html)
    assert len(away) == links and all((path.parent / target).is_file() for target in away)
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
    names = {"results", "hybrid", "provenance", "probe_draft", "probe_target", "decision"}
    names |= {f"paper_{name}" for name in ("table1", "table2", "table3", "table4", "figure4", "figure5")}
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
        "paper_figure3",
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
    assert html.count("&lt;script&gt;") == 7
    (path,) = (tmp_path / "results/report/problems").iterdir()
    inner = path.read_text(encoding="utf-8")
    assert "<script" not in inner and "<img" not in inner and inner.count("&lt;script&gt;") == 6


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
    """Speed-up (of the sums, whatever the mean of the ratios is), its interval and the difference in points are in the
    first line, a caveat in the last."""
    methods = {
        "target": {
            "n": 60,
            "speedup": 1.0,
            "speedup_ci": [1, 1],
            "speedup_total": 1.0,
            "speedup_total_ci": [1, 1],
            "pass_at_1_diff": 0.0,
            "pass_at_1_diff_ci": [0, 0],
        },
        "semantic": {
            "n": 60,
            "speedup": 1.5,
            "speedup_ci": [0.9, 1.9],
            "speedup_total": 1.42,
            "speedup_total_ci": [1.2, 1.7],
            "pass_at_1_diff": -0.02,
            "pass_at_1_diff_ci": [-0.09, 0.05],
        },
    }
    first, last = headline(methods)
    assert first == "semantic: 1.42x [1.20, 1.70] the speed of the target at -2 points Pass@1 [-9, +5]."
    assert "includes 0" in last and "includes 1" not in last and "60 problems." in last


def test_the_headline_of_many_methods_groups_them() -> None:
    """The winner first, then who is shown to be faster, slower, worse; without a winner that is said."""

    def summary(speed: float, spread: float, points: float) -> dict:
        around = [points - 0.05, points + 0.05]
        return {"n": 24, "speedup_total": speed, "speedup_total_ci": [speed - spread, speed + spread],
                "pass_at_1_diff": points, "pass_at_1_diff_ci": around}  # fmt: skip

    methods = {
        "target": summary(1, 0, 0),
        "semantic": summary(1.2, 0.1, -0.2),
        "specreason": summary(0.7, 0.1, 0),
        "prompt_lookup": summary(1.1, 0.2, 0),
        "draft": summary(2, 0.1, -0.3),
    }
    first, *lines = headline(methods)
    assert first.startswith("No method, the draft alone aside, is shown to be faster")
    assert lines == [
        "Shown to be faster than the target: draft 2.00x, semantic 1.20x.",
        "No difference in speed is shown: prompt_lookup 1.10x.",
        "Shown to be slower: specreason 0.70x.",
        "Shown to be worse in Pass@1 (points): draft -30, semantic -20.",
        "24 problems; too few to settle small differences.",
    ]
    methods["semantic_hybrid"] = summary(1.15, 0.1, -0.01)
    wanted = "semantic_hybrid: 1.15x [1.05, 1.25] the speed of the target at -1 [-6, +4] points Pass@1."
    assert headline(methods)[0] == wanted


def test_the_page_names_every_machine_that_answered() -> None:
    """Times of two machines are not passed off as those of the last one."""
    entries = {"machine": {"cpu": "Slow"}, "made_on": {"Quick, cores: 2, commit a": 3, "Slow, cores: 1, commit b": 1}}
    assert subtitle(fake.settings(), entries).endswith("Quick and Slow")
    assert subtitle(fake.settings(), {"machine": {"cpu": "Slow"}, "made_on": {"unknown": 4}}).endswith("Slow")


def test_the_worked_problem_shows_both_verdicts_if_any_does() -> None:
    """An answer with an accepted and a rejected step is preferred to longer ones with one verdict."""
    yes, no = fake.step("draft", "a", accepted=True), fake.step("target", "b", accepted=False)
    rows = [fake.row(0, "m", trace=[yes] * 9), fake.row(1, "m", trace=[yes, no]), fake.row(2, "m", trace=[])]
    assert worked_problem(rows)["id"] == "p1"
    assert worked_problem([*rows, fake.row(3, "semantic", trace=[yes])])["id"] == "p3", "it is what the page is about"
    assert worked_problem([]) is None


def test_equal_inputs_give_equal_bytes(drawn: Path, tmp_path: Path) -> None:
    """Two builds of the same project agree in every file."""
    page(tmp_path, metrics=fake.probe_metrics())
    one, two = ({p.name: p.read_bytes() for p in (r / "results/report").rglob("*.*")} for r in (drawn, tmp_path))
    assert one == two and len(one) == 29 + 12 + 14


def test_map_of_few_states_is_principal_components() -> None:
    """Under 15 states the projection is PCA and keeps all of a planar cloud's distances."""
    rng = np.random.default_rng(0)
    flat = rng.normal(size=(9, 2)) @ rng.normal(size=(2, 30))
    points, axis = figures.project(flat, seed=0)
    assert axis == "PCA"
    assert np.linalg.norm(points[0] - points[5]) == pytest.approx(np.linalg.norm(flat[0] - flat[5]))


@pytest.mark.parametrize(("n", "neighbours"), [(15, 14), (60, 15)])
def test_map_of_more_states_is_umap_of_their_components(monkeypatch, n: int, neighbours: int) -> None:
    """At most 50 components, at most 15 neighbours, and the seed; where principal components are wanted, no UMAP."""
    asked: dict = {}

    class Umap:
        def __init__(self, **how) -> None:
            asked.update(how)

        def fit_transform(self, x: np.ndarray) -> np.ndarray:
            asked["shape"] = x.shape
            return x[:, :2]

    monkeypatch.setitem(sys.modules, "umap", SimpleNamespace(UMAP=Umap))
    states = np.random.default_rng(0).normal(size=(n, 64))
    assert figures.project(states, seed=7, projection="pca")[1] == "PCA" and not asked
    points, axis = figures.project(states, seed=7)
    assert axis == "UMAP" and points.shape == (n, 2)
    assert (asked["random_state"], asked["n_neighbors"], asked["shape"]) == (7, neighbours, (n, min(n, 50)))


@pytest.mark.model_full
def test_umap_keeps_far_groups_apart() -> None:
    """The nearest point is of the same group, and the same seed gives the same map."""
    group = np.repeat([0, 1], 30)
    states = np.random.default_rng(0).normal(size=(60, 80)) + 20 * group[:, None]
    points, axis = figures.project(states, seed=0)
    away = np.linalg.norm(points[:, None] - points, axis=2) + np.diag(np.full(60, np.inf))
    assert axis == "UMAP" and (group[away.argmin(1)] == group).mean() > 0.9
    assert np.array_equal(points, figures.project(states, seed=0)[0])


@pytest.mark.usefixtures("no_drawing")
def test_a_problem_page_shows_each_methods_chain(tmp_path: Path) -> None:
    """p, q, acceptance, verdict, the rejected text, tokens, seconds and the grade, of every method."""
    trace = [fake.step("target", "kept", p=0.11, q=0.44, a=0.25, accepted=False, rejected_text="thrown", seconds=1.5)]
    page(tmp_path, [fake.row(0, "target"), fake.row(0, "semantic", trace=trace, correct=False, answer="5")])
    html = (tmp_path / "results/report/problems/p0.html").read_text(encoding="utf-8")
    assert all(f'<h2 id="method-{i}">{m}</h2>' in html for i, m in ((1, "target"), (2, "semantic")))
    chain = html[html.index(">semantic</h2>") :]
    for part in (
        "p 0.11",
        "q 0.44",
        "keep 0.25",
        "draft rejected",
        "<details>",
        "thrown",
        "kept",
        "20 tokens",
        "1.50 s",
    ):
        assert part in chain, part
    assert "Answer 5, right answer 4" in chain and "wrong" in chain and "Question 0?" in html


@pytest.mark.usefixtures("no_drawing")
def test_problem_pages_are_bounded_and_old_ones_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond the limits the page says how many there are; a second build leaves no page of the first."""
    page(tmp_path, fake.rows(4))
    monkeypatch.setattr(problems, "MAX_PAGES", 2)
    monkeypatch.setattr(problems, "MAX_REPEATS", 1)
    repeats = [r | {"repeat": k} for r in fake.rows(3) for k in (0, 1)]
    html = page(tmp_path, repeats)
    assert "The first 2 of 3 problems" in html
    assert sorted(p.name for p in (tmp_path / "results/report/problems").iterdir()) == ["p0.html", "p1.html"]
    inner = (tmp_path / "results/report/problems/p0.html").read_text(encoding="utf-8")
    assert inner.count("The first 1 of 2 answers") == 3 and inner.count('class="steps"') == 3


def test_names_of_problem_pages_are_safe_and_differ() -> None:
    """No id leaves the folder or meets another's page, not even where case does not count."""
    ids = ["p1", "P1", "a/b", "a-b", "a b", "../../etc/passwd", "", ".", "ü", "x" * 500, "x" * 501]
    names = [problems.Problem(i, "", "").file for i in ids]
    assert len({n.lower() for n in names}) == len(ids)
    assert all(re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_-]*\.html", n) and len(n) < 80 for n in names)
    assert names[0] == "p1.html"


@pytest.mark.usefixtures("no_drawing")
def test_a_bench_folder_alone_gives_a_page_beside_it(tmp_path: Path) -> None:
    """The project's probes, which may belong to another run, stay out of it; the models are those of the run."""
    page(tmp_path, metrics=fake.probe_metrics())
    alone = tmp_path / "elsewhere"
    fake.write_bench(alone, fake.rows(2))
    summary = read_json(alone / "results/bench/summary.json")
    summary["provenance"] |= {"draft": "other-draft", "target": "tiny-target", "dataset": "math500"}
    write_json(alone / "results/bench/summary.json", summary)
    path = build(fake.settings(), tmp_path, alone / "results/bench", recorded=False)
    html = path.read_text(encoding="utf-8")
    assert path == alone / "results/bench/report/index.html"
    assert "bench folder alone" in html and "Reliability" not in html and "2 problems;" in html
    assert "other-draft drafts for tiny-target" in html and "data math500" in html
    assert "judged steps. Ratios" in html and " · seed " not in html  # a rule and a seed that nobody knows


@pytest.mark.parametrize("own", [True, False])
def test_report_of_a_folder_takes_its_own_parameters(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own: bool
) -> None:
    """--results reads the folder's params.yaml where there is one, and says when the run's settings are not known."""
    seen = []
    monkeypatch.setattr("semspec.report.build", lambda *given: seen.append(given) or Path("index.html"))
    monkeypatch.setattr("semspec.config.load", lambda root: str(root))
    (tmp_path / "results.jsonl").touch()
    if own:
        (tmp_path / "params.yaml").write_text("", encoding="utf-8")
    assert main(["report", "--results", str(tmp_path)]) == 0
    assert seen == [(str(tmp_path) if own else ".", Path("."), tmp_path, own, [])]


METHODS = {
    "draft": {"pass_at_1": 0.2, "tps": 30.0, "latency_s": 5.0, "target_ratio": 0.0},
    "semantic": {"pass_at_1": 0.5, "tps": 20.0, "latency_s": 7.25, "target_ratio": None},
}


def filled(layout: published.Layout, dataset: str, settings=None) -> list[dict[str, str]]:
    """The rows of a filled layout, as its CSV has them."""
    table = paper.fill(layout, [paper.Run("results/mine", "a → b", dataset, METHODS, settings)]).table()
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
    numbers = {m: METHODS["semantic"] | {"pass_at_1": i / 10} for i, m in enumerate(methods)}
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
    assert paper.which(published.TABLE_2, paper.Run("results/mine", "a → b", asked, METHODS, settings)) == rows
    run = paper.Run("results/mine", "a → b", asked, METHODS, changed(), trained={"semantic": trained})
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
    methods = METHODS | {"semantic_cross_domain": METHODS["semantic"]}
    run = paper.Run("results/mine", "a → b", "math500", methods, changed(), trained=trained)
    expected = {"Within-domain": within, "Cross-domain": across}
    assert paper.which(published.TABLE_2, run) == {row: m for row, m in expected.items() if m}
    said = dict(paper.fill(published.TABLE_2, [run]).notes)["This run"]
    assert ("`semantic_cross_domain` were trained on is not recorded" in said) == (cross is None)


@pytest.mark.usefixtures("no_drawing")
def test_the_page_takes_the_probes_domain_from_the_run(tmp_path: Path) -> None:
    """From the summary's provenance, before the parameters."""
    page(tmp_path)
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
    """What decides has to be the same; how a rejected step is written need not."""
    names = [
        "semantic",
        "semantic@gamma=2",
        "semantic_hybrid",
        "semantic_hybrid@gamma=2+ngram=5",
        "semantic_hybrid@bias=1",
    ]
    assert salvage.twins(names) == [
        ("semantic", "semantic_hybrid"),
        ("semantic@gamma=2", "semantic_hybrid@gamma=2+ngram=5"),
    ]


@pytest.mark.parametrize("both", [True, False])
@pytest.mark.usefixtures("no_drawing")
def test_page_and_tables_say_what_salvaging_saves(tmp_path: Path, both: bool) -> None:
    """In a section of the page, in hybrid.md, and in a line of results.md; without both methods "not run"."""
    rows = fake.rows(4)
    semantic = [r for r in rows if r["method"] == "semantic"]
    html = page(tmp_path, [*rows, *([fake.hybrid(r, 1.0, 10) for r in semantic] if both else [])])
    section = html[html.index("<h2>What salvaging saves</h2>") :].partition("</section>")[0]
    own = (tmp_path / "results/report/tables/hybrid.md").read_text(encoding="utf-8")
    results = (tmp_path / "results/report/tables/results.md").read_text(encoding="utf-8")
    for text in (section, own):
        assert ("decided alike, a step rejected" in text, tables.NOT_RUN in text) == (both, not both)
        assert "word for word" in text
    line = results[results.index("- **semantic_hybrid against semantic**: ") :].partition("\n")[0]
    assert ("4 answers decided alike" if both else tables.NOT_RUN) in line


@pytest.mark.parametrize("beside", [False, True])
@pytest.mark.usefixtures("no_drawing")
def test_numbers_of_an_older_version_are_computed_anew(tmp_path: Path, beside: bool) -> None:
    """A page prints today's metrics of the answers, not what the summary said by the definitions of its time."""
    fake.write_bench(tmp_path / "old", fake.rows())
    folder = tmp_path / "old/results/bench"
    summary = read_json(folder / "summary.json")
    summary["methods"]["semantic"] |= {"pass_at_1": 0.123, "pass_at_1_ci": [0.1, 0.2], "speedup_total": 9.87}
    del summary["methods"]["semantic"]["exact_acceptance_length"]
    summary["provenance"] |= {"draft": "tiny-draft", "target": "tiny-target", "dataset": "gsm8k"}
    write_json(folder / "summary.json", summary)
    if beside:
        page(tmp_path, [r for r in fake.rows() if r["method"] != "semantic"])
        build(fake.settings(), tmp_path, others=[folder])
        out = tmp_path / "results/report"
    else:
        out = build(fake.settings(), tmp_path, folder).parent
    text = "".join(p.read_text(encoding="utf-8") for p in [out / "index.html", *(out / "tables").iterdir()])
    assert "9.87" not in text and "0.123" not in text
    assert f"{summarize(fake.rows(), 200)['semantic']['pass_at_1']:.3f}" in text


@pytest.mark.usefixtures("no_drawing")
def test_scoring_is_not_shown_of_answers_that_did_not_time_all_of_it(tmp_path: Path) -> None:
    """Where the summing up of hidden states went unmeasured there is a dash for what judged by them."""
    rows = fake.rows(3)
    timed = [r | {"phases": r["phases"] | {"pool": 0.09}} for r in rows]
    share = {}
    for name, answers in (("old", rows), ("new", timed)):
        page(tmp_path / name, answers)
        table = (tmp_path / name / "results/report/tables/results.csv").read_text(encoding="utf-8")
        share[name] = {r["method"]: r["score_share"] for r in csv.DictReader(io.StringIO(table))}
    assert share["old"]["semantic"] == "" and float(share["old"]["target"]) > 0
    assert float(share["new"]["semantic"]) == pytest.approx(
        3 * 0.1 / sum(r["latency_s"] for r in rows if r["method"] == "semantic")
    )


def test_answers_that_no_metric_can_be_made_of_are_told(tmp_path: Path) -> None:
    fake.write_bench(tmp_path, fake.rows(1))
    rows = [{k: v for k, v in r.items() if k != "phases"} for r in fake.rows(1)]
    write_jsonl(tmp_path / "results/bench/results.jsonl", rows)
    with pytest.raises(UserError, match=r"results\.jsonl holds rows without what every metric needs \('phases'\)"):
        build(fake.settings(), tmp_path)


def test_the_map_shows_every_tenth_of_probability_alike() -> None:
    """A tenth with many samples gives as many as the middle one has; the seed decides which."""
    label = np.array([0.0] * 500 + [0.05] * 100 + [0.1] * 8 + [0.3] * 40 + [0.95] * 20 + [1.0] * 20)
    drawn, share = evenly(label, 4000, seed=3)
    tenth = np.minimum(9, (10 * label[drawn] + 1e-9).astype(int))
    assert share == 40 and np.bincount(tenth).tolist() == [40, 8, 0, 40, 0, 0, 0, 0, 0, 40]
    assert (np.diff(drawn) > 0).all() and (drawn == evenly(label, 4000, seed=3)[0]).all()
    assert not np.array_equal(drawn, evenly(label, 4000, seed=4)[0])
    few, share = evenly(label, 40, seed=3)
    assert share == 10 and len(few) == 38


def test_the_map_of_the_page_is_drawn_from_every_tenth(drawn: Path) -> None:
    """And its caption says how many of how many."""
    label = pd.read_parquet(drawn / "data/labels.parquet")["p_target"].to_numpy()
    shown, share = evenly(label, 4000, 0)
    html = (drawn / "results/report/index.html").read_text(encoding="utf-8")
    assert (
        f"{len(shown)} of 10 samples as the target reads them, drawn at random, at most {share} from each tenth" in html
    )
    assert len(shown) < 10


@pytest.mark.usefixtures("no_drawing")
def test_figures_4_and_5_are_drawn_where_there_are_two_points(tmp_path: Path) -> None:
    """Two γ give the picture; one split gives none, and that is said."""
    semantic = [r for r in fake.rows() if r["method"] == "semantic"]
    html = page(tmp_path, [*fake.rows(), *(r | {"method": "semantic@gamma=3"} for r in semantic)])
    assert '<svg id="paper_figure4">' in html and "paper_figure5" not in html
    assert "Figure 5: where a step ends: no picture; not run with two of them on one problem set." in html


def test_curves_over_a_setting_are_told_apart() -> None:
    """A line for each benchmark, with its intervals, that differs from the others in colour and in dash or marker."""
    summary = METHODS["semantic"] | {"pass_at_1_ci": [0.25, 0.75]}
    lines = {g: {f"γ = {k}": summary for k in (1, 3)} for g in ("AMC23", "AIME24", "Math-500", "gsm8k")}
    figure = figures.by_setting(("γ = 1", "γ = 2", "γ = 3"), lines)
    rate, speed = figure.axes
    drawn = [line for line in speed.lines if len(line.get_xdata()) == 2]
    assert len(drawn) == 4 and all(line.get_ydata().tolist() == [20.0, 20.0] for line in drawn)
    assert len({line.get_color() for line in drawn}) == 4
    assert len({(line.get_marker(), str(line._dash_pattern)) for line in drawn}) == 4
    ends = rate.containers[0].lines[2][0].get_segments()
    assert [s[:, 1].tolist() for s in ends] == [[25.0, 75.0]] * 2
    pyplot.close(figure)


def test_curves_of_rules_differ_in_dash_too() -> None:
    """And none has the dash of a reference line."""
    curve = np.array([0.2, 0.9])
    figure = figures.tradeoff({t: (curve, curve) for t in ("p / q", "p alone", "joint predictor")}, 0.5, 0.3)
    dashes = [str(line._dash_pattern) for line in figure.axes[0].lines]
    assert len(dashes) == len(set(dashes)) == 5
    pyplot.close(figure)


def test_no_two_methods_share_a_colour_in_one_picture() -> None:
    """Whatever methods there are, in whatever order, and in the paper's plane too."""
    everything = ["semantic_hybrid", "specreason", "semantic@gamma=2", "target", "prompt_lookup", "draft", "semantic"]
    for names in (everything, everything[:5], everything[2:], [f"semantic@gamma={i}" for i in range(14)]):
        look = figures.looks(names)
        assert len({colour for colour, _ in look.values()}) == len(names)
        assert all(look[n][0] == figures.COLOURS[n] for n in names if n in figures.COLOURS)
        points = {n: {"latency_s": 1.0 + i, "pass_at_1": 0.5} for i, n in enumerate(names)}
        figure = figures.quality_speed(points, names)
        drawn = [c.lines[0].get_color() for c in figure.axes[0].containers]
        assert len(set(drawn)) == len(names)
        pyplot.close(figure)
    panel = {row: (1.0, 0.5) for row in ("SemanticSpec", "SpecReason", "SpecSampling", "SpecThinking", "Target Model")}
    figure = figures.paper_plane([("mine", {"gsm8k": panel})], paper.METHODS)
    drawn = {line.get_color() for line in figure.axes[0].lines}
    assert len(drawn) == 5 and {figures.COLOURS["target"], figures.COLOURS["semantic"]} < drawn
    pyplot.close(figure)


def test_runs_beside_fill_what_the_first_lacks() -> None:
    """Another split's row, another set's columns; where two runs have a cell, the first gives it; notes say which."""
    base = fake.settings()
    blank, sentence = (
        base.model_copy(update={"text": base.text.model_copy(update={"split": split})})
        for split in ("blank_line", "sentence")
    )
    better = {"semantic": METHODS["semantic"] | {"pass_at_1": 0.75}}
    runs = [
        paper.Run("results/a", "a → b", "gsm8k", METHODS, blank),
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
    page(tmp_path)
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


def test_the_papers_plane_takes_its_points_from_table_4() -> None:
    """Latency and Pass@1 of each method; a panel that was not run has no point."""
    run = paper.Run("results/mine", "a → b", "math500", METHODS, None)
    (title, theirs), _, (mine, ours) = paper.plane(paper.fill(published.TABLE_4, [run]))
    assert published.R1 in title and theirs["AIME24"]["SemanticSpec"] == (86.75, 0.553)
    assert mine.startswith("This run") and ours["Math-500"] == {"Draft Model": (5.0, 0.2), "SemanticSpec": (7.25, 0.5)}
    assert ours["AMC23"] == {}


def test_the_front_holds_what_no_method_dominates() -> None:
    """Off it: worse in both, or equal in one and worse in the other; equal in both stays."""
    points = {"a": (0.5, 1), "b": (0.9, 2), "same": (0.9, 2), "tie": (0.9, 3), "slow": (0.4, 4), "best": (1.0, 9)}
    methods = {n: {"pass_at_1": y, "latency_s": x} for n, (y, x) in points.items()}
    assert pareto(methods) == ["a", "b", "same", "best"]


def test_dominated_methods_are_paler() -> None:
    """The plane draws a method off the front with less ink, and says so in the legend."""
    methods = {"target": {"pass_at_1": 0.9, "latency_s": 2}, "semantic": {"pass_at_1": 0.8, "latency_s": 3}}
    figure = figures.quality_speed(methods, list(methods))
    alphas = {c.get_label(): c.lines[0].get_alpha() for c in figure.axes[0].containers}
    pyplot.close(figure)
    assert alphas["target"] == 1 and alphas["semantic (dominated)"] < 0.5


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


def test_terminal_table_of_many_methods_keeps_names_and_numbers() -> None:
    """Fifteen methods go down the page; no number is cut."""
    methods = summarize(fake.rows(), 200)
    many = methods | {f"semantic@rule=ratio+threshold=0.{i:02}": methods["semantic"] for i in range(12)}
    console = Console(width=80, file=io.StringIO())
    console.print(tables.render_table({"methods": many}))
    text = console.file.getvalue()
    assert "…" not in text and text.count(BY_KEY["speedup_total"].text(methods["semantic"])) == 13
    assert max(map(len, text.splitlines())) <= 80


def terminal(rows: list[dict]) -> str:
    console = Console(width=80, file=io.StringIO())
    console.print(tables.render_table({"methods": summarize(rows, 200)}))
    return console.file.getvalue()


def test_many_methods_fit_into_the_picture() -> None:
    """Fifteen names, long ones among them: the legend lies within the figure, and no two points look alike."""
    names = ["target", "draft", *(f"semantic@rule=ratio+threshold=0.{i:02}" for i in range(13))]
    found = {n: {"latency_s": 1.0 + i, "pass_at_1": 0.5} for i, n in enumerate(names)}
    figure = figures.quality_speed(found, names)
    figure.canvas.draw()
    box = figure.legends[0].get_window_extent()
    assert box.x0 >= 0 and box.y0 >= 0 and box.x1 <= figure.bbox.x1 and box.y1 <= figure.bbox.y1
    points = [line for line in figure.axes[0].lines if line.get_marker() in figures._MARKERS]
    assert len({(line.get_marker(), str(line.get_color())) for line in points}) == len(names)
    pyplot.close(figure)

"""The report: what the page says, what it escapes, and that it stands alone."""

from __future__ import annotations

import csv
import io
import re
from html.parser import HTMLParser
from pathlib import Path

import fake_results as fake
import pandas as pd
import pytest

from semspec.bench.metrics import summarize
from semspec.cli import main
from semspec.errors import UserError
from semspec.files import read_json, write_json, write_jsonl
from semspec.report import problems
from semspec.report.headline import headline
from semspec.report.page import build, subtitle, worked_problem
from semspec.report.pictures import evenly


@pytest.fixture(scope="module")
def drawn(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A fake project with every figure drawn."""
    root = tmp_path_factory.mktemp("drawn")
    fake.page(root, metrics=fake.probe_metrics())
    return root


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
    html = fake.page(tmp_path, [fake.row(0, "target", id=evil, trace=[]), row])
    assert "<script" not in html and "<img" not in html
    assert html.count("&lt;script&gt;") == 7
    (path,) = (tmp_path / "results/report/problems").iterdir()
    inner = path.read_text(encoding="utf-8")
    assert "<script" not in inner and "<img" not in inner and inner.count("&lt;script&gt;") == 6


@pytest.mark.parametrize("failing", [[], ["draft"], ["target"], ["decision"], ["draft", "target", "decision"]])
@pytest.mark.usefixtures("no_drawing")
def test_a_red_box_for_each_part_that_does_not_beat_its_baselines(tmp_path: Path, failing: list[str]) -> None:
    """Exactly the failing probes, and the decision, get a warning, with their numbers in it."""
    html = fake.page(tmp_path, metrics=fake.probe_metrics(**dict.fromkeys(failing, False)))
    boxes = re.findall(r'<div class="warn".*?</div>', html, flags=re.S)
    assert len(boxes) == len(failing)
    for box, part in zip(boxes, failing, strict=True):
        assert part in box and "does not beat its baselines" in box and "0.300" in box


@pytest.mark.usefixtures("no_drawing")
def test_an_undecided_decision_is_no_warning(tmp_path: Path) -> None:
    """With labels that cannot tell, the page says so in plain text."""
    html = fake.page(tmp_path, metrics=fake.probe_metrics(decision=None))
    assert 'class="warn"' not in html and "cannot be told with these labels" in html


@pytest.mark.usefixtures("no_drawing")
def test_a_run_without_probes_says_what_is_missing(tmp_path: Path) -> None:
    """Target and draft alone give a page whose probe sections name what did not run."""
    html = fake.page(tmp_path, [r for r in fake.rows() if r["method"] != "semantic"])
    assert "No probes were trained" in html and "No map:" in html and "No draft step was judged" in html
    assert "draft: " in headline(summarize([r for r in fake.rows() if r["method"] != "semantic"], 200))[0]


@pytest.mark.parametrize("name", ["target", "semantic"])
@pytest.mark.usefixtures("no_drawing")
def test_one_method_and_one_problem_are_enough(tmp_path: Path, name: str) -> None:
    """The smallest comparison there is still gives a page."""
    assert "1 problem;" in fake.page(tmp_path, [r for r in fake.rows(1) if r["method"] == name])


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
    fake.page(tmp_path, metrics=fake.probe_metrics())
    one, two = ({p.name: p.read_bytes() for p in (r / "results/report").rglob("*.*")} for r in (drawn, tmp_path))
    assert one == two and len(one) == 29 + 12 + 14


@pytest.mark.usefixtures("no_drawing")
def test_a_problem_page_shows_each_methods_chain(tmp_path: Path) -> None:
    """p, q, acceptance, verdict, the rejected text, tokens, seconds and the grade, of every method."""
    trace = [fake.step("target", "kept", p=0.11, q=0.44, a=0.25, accepted=False, rejected_text="thrown", seconds=1.5)]
    fake.page(tmp_path, [fake.row(0, "target"), fake.row(0, "semantic", trace=trace, correct=False, answer="5")])
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
    fake.page(tmp_path, fake.rows(4))
    monkeypatch.setattr(problems, "MAX_PAGES", 2)
    monkeypatch.setattr(problems, "MAX_REPEATS", 1)
    repeats = [r | {"repeat": k} for r in fake.rows(3) for k in (0, 1)]
    html = fake.page(tmp_path, repeats)
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
    fake.page(tmp_path, metrics=fake.probe_metrics())
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
        fake.page(tmp_path, [r for r in fake.rows() if r["method"] != "semantic"])
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
        fake.page(tmp_path / name, answers)
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
    with pytest.raises(
        UserError, match=r"results\.jsonl holds rows without what every metric needs \(line 1, phases: field required\)"
    ):
        build(fake.settings(), tmp_path)


@pytest.mark.parametrize("what", ["latency_s", "trace", "question", "half a character", "p"])
def test_a_row_that_cannot_be_shown_is_named(tmp_path: Path, what: str) -> None:
    """One in six is enough: no picture, page or table is begun with it."""
    rows = fake.rows(2)
    row = rows[-1]
    if what == "latency_s":
        row[what] = float("nan")
    elif what == "half a character":
        row["output"] = "HALF"
    elif what == "p":
        row["trace"] = [{k: v for k, v in fake.step("draft", "x").items() if k != "p"}]
    else:
        del row[what]
    fake.write_bench(tmp_path, rows)
    path = tmp_path / "results/bench/results.jsonl"
    path.write_text(path.read_text(encoding="utf-8").replace("HALF", "\\ud800"), encoding="utf-8")
    with pytest.raises(UserError, match=rf"without what every metric needs \(line {len(rows)}, "):
        build(fake.settings(), tmp_path)


def test_the_map_of_the_page_is_drawn_from_every_tenth(drawn: Path) -> None:
    """And its caption says how many of how many."""
    label = pd.read_parquet(drawn / "data/labels.parquet")["p_target"].to_numpy()
    shown, share = evenly(label, 4000, 0)
    html = (drawn / "results/report/index.html").read_text(encoding="utf-8")
    assert (
        f"{len(shown)} of 10 samples as the target reads them, drawn at random, at most {share} from each tenth" in html
    )
    assert len(shown) < 10

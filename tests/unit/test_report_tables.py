"""Tables as files and in the terminal."""

from __future__ import annotations

import csv
import io

import fake_results as fake
from rich.console import Console

from semspec.bench.metrics import BY_KEY, METRICS, summarize
from semspec.report import tables


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

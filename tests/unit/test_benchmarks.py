"""What the benchmark scripts share: turns, ratios, goals, and the page that is made of findings."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path

import pytest

from semspec.errors import UserError
from semspec.files import write_json, write_jsonl

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"


@pytest.fixture
def common(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import common

    return common


def test_everything_takes_turns_and_the_warm_up_counts_for_nothing(common):
    order = []
    found = common.take_turns({name: lambda name=name: order.append(name) or len(order) for name in "abc"}, 3)
    assert "".join(order) == "abc" + "abc" + "bca" + "cab"
    assert found == {"a": [4, 9, 11], "b": [5, 7, 12], "c": [6, 8, 10]}


def test_a_ratio_is_taken_within_its_round(common):
    """A machine that is twice as slow in one round changes no ratio."""
    assert common.ratios([2.0, 4.0, 2.0], [1.0, 2.0, 1.0]) == [2.0, 2.0, 2.0]
    assert common.spread([1.0, 3.0, 2.0]) == "2.00x [1.00, 3.00]"


@pytest.mark.parametrize(
    ("found", "bound", "met"),
    [(0.95, {"at_least": 0.95}, True), (0.94, {"at_least": 0.95}, False), (31, {"at_most": 30}, False)],
)
def test_a_goal_says_whether_it_is_met(common, found, bound, met):
    assert common.goal("speed", found, **bound)["met"] is met


def test_the_page_holds_each_finding_with_its_command_and_what_is_missing(common, monkeypatch, tmp_path, capsys):
    """Folders of this machine stay out of it, and so does --out."""
    import run

    words = ["/home/someone/sampling.py", "--results", "/home/someone/run", "--out", str(tmp_path), "--n", "4"]
    monkeypatch.setattr(sys, "argv", words)
    chosen = argparse.Namespace(out=tmp_path, quick=False)
    goals = [common.goal("samples/s", 6.2, at_least=5)]
    common.publish(chosen, "Sampling", [common.table(["who", "s"], [["ours", 1.23456]])], goals, "Notes.")
    monkeypatch.setattr(run, "HERE", tmp_path / "benchmarks")
    run.write_page(tmp_path, tmp_path / "RESULTS.md")
    page = (tmp_path / "RESULTS.md").read_text()
    assert "    python benchmarks/sampling.py --results run --n 4\n" in page
    assert "| ours | 1.23 |" in page
    assert "| samples/s | ≥ 5 | 6.2 | yes |" in page
    assert "someone" not in page
    assert "Not measured: `llamacpp_decode`" in page
    assert json.loads((tmp_path / "sampling.json").read_text())["machine"]["cores"] >= 1


def test_what_a_script_is_compared_with_is_read_before_hours_of_work(common, monkeypatch, tmp_path):
    """A run that is not there; and a comparison without the target, which links it to another one."""
    import overhead
    import peers

    monkeypatch.setattr(sys, "argv", ["overhead.py", "--compare", str(tmp_path)])
    monkeypatch.setattr(overhead.subprocess, "run", lambda *_, **__: pytest.fail("it has begun"))
    with pytest.raises(UserError, match=r"results.jsonl is missing"):
        overhead.main()
    write_jsonl(tmp_path / "results.jsonl", [{"method": "draft", "id": "a", "latency_s": 2.0}])
    made = {"gpu": None, "cpu": "Slow", "cores": 2}
    write_json(tmp_path / "summary.json", {"provenance": {"machine": made}})
    assert overhead.whole_run(tmp_path) == (2.0, "Slow, 2 cores")
    with pytest.raises(UserError, match="has no `target`"):
        peers.asked(argparse.Namespace(quick=False, results=tmp_path, limit=None))


def test_an_early_end_makes_no_engine_faster(common, monkeypatch):
    """Milliseconds are divided by the tokens that were asked for, so as many are written."""
    import engine
    import torch
    from tiny import tiny_engine

    model = tiny_engine()
    model.eos_ids = frozenset(range(len(model.tokenizer)))
    monkeypatch.setattr(torch, "randint", lambda *_, **__: torch.arange(248) % 200)
    engine.measure(model, 1, "all")
    assert model.passes[1] == 4 + 8


def test_every_script_is_in_the_one_command_and_explains_itself(common):
    """`run.py` knows the scripts that publish a finding."""
    import run

    publishing = {p.stem for p in BENCHMARKS.glob("*.py") if "publish(" in p.read_text() and p.stem != "common"}
    assert publishing == set(run.SCRIPTS)
    done = subprocess.run(
        [sys.executable, str(BENCHMARKS / "run.py"), "--help"], capture_output=True, text=True, check=True
    )
    assert "--resume" in done.stdout

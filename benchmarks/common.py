"""What the benchmark scripts share: taking turns, ratios, and the file that a finding is written to.

A script measures several things in ONE run, in turns, so that a machine whose load drifts slows all of them alike. What
counts is a ratio, taken within each round: its median over the rounds, and the lowest and highest. A finding goes to
measured/SCRIPT.json with the command, the machine, the commit and the date; run.py makes RESULTS.md of all of them.
Knows nothing of what is measured.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

from semspec.errors import UserError
from semspec.files import digest, read_jsonl, write_json, write_jsonl
from semspec.provenance import code, machine, versions

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
TARGET, DRAFT, TINY = "qwen2.5-coder-1.5b-instruct", "qwen2.5-coder-0.5b-instruct", "smollm2-135m-instruct"

Value = TypeVar("Value")


def arguments(doc: str | None, repeats: int = 5) -> argparse.ArgumentParser:
    """The options of every script. `--quick` asks for the smallest sizes that still run everything."""
    args = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    args.add_argument("--quick", action="store_true", help="a tiny model and small sizes: does the script work?")
    args.add_argument("--repeats", type=int, default=repeats, help="rounds; medians are taken over them")
    args.add_argument("--threads", type=int, default=0, help="0 = every core that this process may use")
    args.add_argument("--out", type=Path, help="folder of the finding (measured/; with --quick measured/quick/)")
    return args


def out(chosen: argparse.Namespace) -> Path:
    return chosen.out or HERE / "measured" / ("quick" if chosen.quick else "")


def seconds(call: Callable[[], Any]) -> float:
    started = time.perf_counter()
    call()
    return time.perf_counter() - started


def take_turns(
    runs: Mapping[str, Callable[[], Value]], repeats: int, kept: Path | None = None
) -> dict[str, list[Value]]:
    """What each run gave in each round; another one begins each round. Before them each runs once, uncounted.

    kept: a file of rounds for a killed script; those that the same command made of the same commit are not made again.
    """
    names = list(runs)
    key = digest(json.dumps([names, repeats, _public(sys.argv[1:]), code()]))
    before = read_jsonl(kept) if kept is not None and kept.exists() else []
    rounds: list[dict[str, Value]] = [row["round"] for row in before if row["key"] == key]
    for name in names if len(rounds) < repeats else ():
        runs[name]()
    for i in range(len(rounds), repeats):
        first = i % len(names)
        made = {name: runs[name]() for name in names[first:] + names[:first]}
        rounds.append(made)
        if kept is not None:
            write_jsonl(kept, [{"key": key, "round": r} for r in rounds])
        print(f"round {i + 1} of {repeats}", file=sys.stderr, flush=True)
    return {name: [r[name] for r in rounds] for name in names}


def ratios(above: Sequence[float], below: Sequence[float]) -> list[float]:
    """`above / below` of each round."""
    return [a / b for a, b in zip(above, below, strict=True)]


def spread(values: Sequence[float], unit: str = "x") -> str:
    """Median [lowest, highest]."""
    median, low, high = statistics.median(values), min(values), max(values)
    return f"{median:.2f}{unit} [{low:.2f}, {high:.2f}]"


def goal(what: str, found: float, at_least: float | None = None, at_most: float | None = None) -> dict[str, Any]:
    """A line of the goals: what was asked, what was found, whether that is enough."""
    wanted = f"≥ {at_least:g}" if at_most is None else f"≤ {at_most:g}"
    met = found >= at_least if at_least is not None else found <= (at_most or 0.0)
    return {"what": what, "wanted": wanted, "found": round(found, 4), "met": bool(met)}


def table(head: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """Markdown; numbers to three digits."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(f"{c:.3g}" if isinstance(c, float) else str(c) for c in r) + " |" for r in lines)


def publish(
    chosen: argparse.Namespace, title: str, tables: Sequence[str], goals: Sequence[Mapping[str, Any]], notes: str
) -> None:
    """Print a finding and write it. `notes`: what a reader has to know to judge the figures."""
    script = Path(sys.argv[0]).stem
    finding = {
        "script": script,
        "title": title,
        "command": " ".join(["python", f"benchmarks/{script}.py", *_public(sys.argv[1:])]),
        "machine": machine(),
        "load": round(os.getloadavg()[0], 1),
        "code": code(),
        "packages": versions(),
        "date": datetime.now(UTC).date().isoformat(),
        "quick": chosen.quick,
        "tables": list(tables),
        "goals": list(goals),
        "notes": notes,
    }
    write_json(out(chosen) / f"{script}.json", finding)
    print(section(finding))


def _public(words: Sequence[str]) -> list[str]:
    """The options as given, without folders of this machine and without `--out`."""
    kept, skip = [], False
    for word in words:
        if skip or word == "--out":
            skip = word == "--out"
        elif not word.startswith("--out="):
            kept.append(Path(word).name if Path(word).is_absolute() else word)
    return kept


def section(finding: Mapping[str, Any]) -> str:
    """A finding as a section of RESULTS.md."""
    m, commit = finding["machine"], finding["code"]
    where = ", ".join([m["cpu"] or "CPU", f"{m['cores']} cores", *([m["gpu"]] if m["gpu"] else [])])
    version = (commit["commit"] or "?")[:10] + (" with changes" if commit["dirty"] else "")
    lines = [f"## {finding['title']}", "", f"    {finding['command']}", ""]
    lines += [f"{finding['date']}, commit {version}, {where}, load average at the end {finding['load']}", ""]
    for each in finding["tables"]:
        lines += [each, ""]
    if finding["goals"]:
        rows = [[g["what"], g["wanted"], g["found"], "yes" if g["met"] else "no"] for g in finding["goals"]]
        lines += [table(["goal", "wanted", "found", "met"], rows), ""]
    return "\n".join([*lines, finding["notes"], ""])


def run(main: Callable[[], None]) -> None:
    """Call a script's `main`; a mistake of the user's is one line and exit code 2, as in the `semspec` command."""
    try:
        main()
    except UserError as e:
        print(f"error: {e}", file=sys.stderr)
        raise SystemExit(2) from None

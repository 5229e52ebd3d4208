"""What the platform itself costs: the seconds of `semspec run` that are no stage's, and of a run with nothing to do.

    python benchmarks/overhead.py [--profile synthetic] [--compare results/laptop] [--repeats 5] [--quick]

Runs the committed code in a fresh clone, with the models that are already in the user's cache, and watches the
processes `semspec stage NAME`; what is left of the wall time is Prefect, DVC, MLflow and Python's start.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from statistics import median

import psutil
from common import ROOT, arguments, goal, publish, run, seconds, spread, table

from semspec.errors import UserError
from semspec.files import read_json, read_jsonl

LOOK_S = 0.05  # between two looks at the processes
SMALL = [
    "contexts.questions=12",
    "sample.n=4",
    "train.predictor=linear",
    "bench.limit=3",
    "bench.methods=[target, draft]",
]


def stage_of(process: psutil.Process) -> str | None:
    """NAME of a process `semspec stage NAME`, which the shell around it is not."""
    words = process.cmdline()
    at = [i for i, word in enumerate(words[:-2]) if Path(word).name == "semspec" and words[i + 1] == "stage"]
    return words[at[0] + 2] if at else None


def watch(process: subprocess.Popen[bytes]) -> dict[str, float]:
    """Wall seconds of each stage that `process` starts, until it ends."""
    found: dict[str, float] = {}
    me = psutil.Process(process.pid)
    while process.poll() is None:
        try:
            for child in me.children(recursive=True):
                name = stage_of(child)
                if name is not None:
                    found[name] = max(found.get(name, 0.0), time.time() - child.create_time())
        except psutil.NoSuchProcess:  # it ended while we looked
            pass
        time.sleep(LOOK_S)
    return found


def whole_run(folder: Path) -> tuple[float, str]:
    """Seconds of a finished run's answers, and the machine that made them."""
    seconds = sum(row["latency_s"] for row in read_jsonl(folder / "results.jsonl"))
    made = read_json(folder / "summary.json")["provenance"]["machine"]
    return seconds, f"{made['gpu'] or made['cpu'] or 'CPU'}, {made['cores']} cores"


def main() -> None:
    args = arguments(__doc__)
    args.add_argument("--profile", default="synthetic")
    args.add_argument("--compare", type=Path, default=ROOT / "results/laptop", help="finished run whose length counts")
    chosen = args.parse_args()
    whole, machine = whole_run(chosen.compare)
    sets = []
    if chosen.quick:
        chosen.repeats, sets = 1, [word for name in SMALL for word in ("--set", name)]
    with tempfile.TemporaryDirectory() as folder:
        clone = Path(folder) / "clone"
        subprocess.run(["git", "clone", "-q", str(ROOT), str(clone)], check=True)
        command = [str(Path(sys.executable).parent / "semspec"), "run"]
        env = os.environ | {"PYTHONPATH": str(clone / "src")}
        started = time.perf_counter()
        first = subprocess.Popen([*command, "--profile", chosen.profile, *sets], cwd=clone, env=env, stdout=sys.stderr)
        stages = watch(first)
        wall = time.perf_counter() - started
        if first.returncode != 0:
            raise UserError(f"`semspec run` ended with exit code {first.returncode}; its own lines are above")
        again = partial(subprocess.run, command, cwd=clone, env=env, check=True, stdout=sys.stderr)
        idle = [seconds(again) for _ in range(chosen.repeats)]
    own = wall - sum(stages.values())
    rows = [[name, s] for name, s in stages.items()]
    rows += [["all stages", sum(stages.values())], ["`semspec run`", wall], ["the platform's own", own]]
    compared = f"`{chosen.compare.name}` run"
    publish(
        chosen,
        "The platform's own seconds",
        [
            table(["", "s"], rows),
            table(
                ["the platform's own", "share of this run", f"share of a {compared}", "a run with nothing to do"],
                [[f"{own:.1f} s", f"{own / wall:.1%}", f"{own / whole:.2%} or less", spread(idle, " s")]],
            ),
        ],
        [
            goal(f"the platform's own share of a {compared}", own / whole, at_most=0.05),
            goal("a run with nothing to do, s", median(idle), at_most=30),
        ],
        f"Profile `{chosen.profile}` in a fresh clone, every stage run. A stage's seconds are those of its process, "
        f"Python's start included. Of the {compared} (on {machine}) only the answers of its comparison are counted "
        f"({whole:.0f} s), less than half of it, so the share is an upper bound.",
    )


if __name__ == "__main__":
    run(main)

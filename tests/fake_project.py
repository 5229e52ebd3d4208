"""A git and DVC project with the real flows and fake stages, for tests of what runs them."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

REPO = Path(__file__).resolve().parents[1]

# what a stage does depends on the seed: 2 the user's mistake, 3 a bug, 4 sleeps, 6 fails once, 7 won't end by SIGTERM
STAGE = """
import sys, time, pathlib, signal, ruamel.yaml
name, out = sys.argv[1:3]
seed = ruamel.yaml.YAML(typ="safe").load(open("params.yaml"))["seed"]
print(f"working on {name}", flush=True)
with open("ran.txt", "a") as f: f.write(name + "\\n")
if name == "bench":
    if seed == 2: sys.exit(print("error: no dataset 'x'; see the docs", file=sys.stderr) or 2)
    if seed == 3: raise RuntimeError("bug")
    if seed == 7: signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if seed in (4, 7): print("asleep", flush=True); time.sleep(120)
    once = pathlib.Path("once")
    if seed == 6 and not once.exists(): once.touch(); raise RuntimeError("once")
p = pathlib.Path(out); p.parent.mkdir(parents=True, exist_ok=True)
text = '{"methods": {"semantic": {"pass_at_1": 0.5, "pass_at_1_ci": [0.1, 0.9], "n": 6, "tps": null}}, "seed": SEED}'
text = text.replace("SEED", str(seed))
p.write_text(text if out.endswith("summary.json") else f"{name} {seed}")
"""
DVC_YAML = """
stages:
  models: {cmd: python stage.py models m.txt, params: [models], outs: [m.txt]}
  bench:
    cmd: python stage.py bench results/bench/summary.json
    deps: [m.txt]
    params: [seed]
    metrics: [results/bench/summary.json]
  report:
    cmd: python stage.py report results/report/index.html
    deps: [results/bench/summary.json]
    outs: [results/report/index.html]
"""


def make_fake(root: Path) -> Path:
    """The project in `root`; `ran.txt` in it will name the stages that ran."""
    subprocess.run(["git", "init", "-q"], cwd=root, check=True)
    shutil.copytree(REPO / ".dvc", root / ".dvc", ignore=shutil.ignore_patterns("tmp", "cache", "config.local"))
    shutil.copytree(REPO / "flows", root / "flows", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(REPO / "tests/defaults/params.yaml", root)
    (root / "dvc.yaml").write_text(DVC_YAML)
    (root / "stage.py").write_text(STAGE)
    return root


def ran(root: Path) -> list[str]:
    """The stages that ran since this was last asked."""
    path = root / "ran.txt"
    names = path.read_text().split() if path.exists() else []
    path.unlink(missing_ok=True)
    return names


def alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


def processes(root: Path, word: str) -> list[int]:
    """The processes in `root` with that word in their command line."""
    found = []
    for proc in Path("/proc").iterdir():
        try:
            if proc.name.isdigit() and word in (proc / "cmdline").read_text() and (proc / "cwd").resolve() == root:
                found.append(int(proc.name))
        except OSError:
            continue
    return [pid for pid in found if pid != os.getpid() and alive(pid)]

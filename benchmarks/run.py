"""All benchmarks by one command, each script as a process of its own; RESULTS.md from what they found.

    python benchmarks/run.py [--resume] [--only SCRIPT ...] [--page] [--results FOLDER] [--threads N] [--quick]

--resume leaves out scripts whose finding is there. --page only writes RESULTS.md. A script that was run by itself, with
options of its own, has left its finding in the same place. A script that fails is named, and the others run. With
--quick everything goes to measured/quick/.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

from common import HERE, section

from semspec.files import atomic, read_json

SCRIPTS = ("llamacpp_decode", "torch_decode", "int8_quality", "sampling", "clustering", "overhead", "peers")
HEAD = """# Results of the benchmarks

Written by `python benchmarks/run.py`, which runs one script after the other; each section says with which command, on
which machine, of which commit. `python benchmarks/run.py --resume` goes on where it stopped. Times and ratios
with brackets are medians [lowest, highest] over the rounds of one run in which everything took turns.
"""


def write_page(folder: Path, path: Path) -> None:
    found = [folder / f"{name}.json" for name in SCRIPTS]
    parts = [section(read_json(p)) for p in found if p.exists()]
    missing = [f"`{p.stem}`" for p in found if not p.exists()]
    tail = [f"Not measured: {', '.join(missing)}.\n"] if missing else []
    with atomic(path) as temporary:
        temporary.write_text("\n".join([HEAD, *parts, *tail]), encoding="utf-8")
    print(f"wrote {path.relative_to(HERE.parent)}")


def main() -> int:
    args = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    args.add_argument("--resume", action="store_true", help="leave out what is measured")
    args.add_argument("--only", nargs="+", choices=SCRIPTS, default=SCRIPTS)
    args.add_argument("--page", action="store_true", help="run nothing, write RESULTS.md")
    args.add_argument("--results", help="finished comparison that `peers` goes on from; default: its own")
    args.add_argument("--threads", type=int, default=0)
    args.add_argument("--quick", action="store_true")
    chosen = args.parse_args()
    folder = HERE / "measured" / ("quick" if chosen.quick else "")
    page = (folder if chosen.quick else HERE) / "RESULTS.md"
    passed = [*(["--quick"] if chosen.quick else []), *(["--threads", str(chosen.threads)] if chosen.threads else [])]
    failed = []
    for name in () if chosen.page else chosen.only:
        if chosen.resume and (folder / f"{name}.json").exists():
            print(f"{name}: measured already")
            continue
        print(f"{name} ...", flush=True)
        more = ["--results", chosen.results] if name == "peers" and chosen.results else []
        code = subprocess.run([sys.executable, str(HERE / f"{name}.py"), *passed, *more], check=False).returncode
        if code != 0:
            failed.append(f"{name} (exit code {code})")
    write_page(folder, page)
    if failed:
        print(f"failed: {', '.join(failed)}; their own lines are above", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

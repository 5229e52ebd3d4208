"""docs/scale.md shows what benchmarks/scale.py computes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

REPO = Path(__file__).resolve().parents[2]


def test_the_figures_of_the_page_are_what_the_script_prints():
    """Every line of the script's tables stands in the page, and the sum for the other GPU too."""
    page = (REPO / "docs/scale.md").read_text(encoding="utf-8")
    script = [sys.executable, "benchmarks/scale.py"]
    printed = subprocess.run(script, cwd=REPO, capture_output=True, text=True, check=True).stdout
    lines = [line for line in printed.splitlines() if line.startswith("|")]
    assert len(lines) > 15 and all(line in page for line in lines)
    other = subprocess.run([*script, "--gpu", "h200"], cwd=REPO, capture_output=True, text=True, check=True).stdout
    total = next(line for line in other.splitlines() if line.startswith("| all |")).split("|")
    assert f"takes {total[2].strip()} and {total[3].strip()} GPU hours" in page

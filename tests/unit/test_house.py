"""The rules of the house: imports point one way, the command line starts light, flows stay readable by Prefect."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

REPO = Path(__file__).resolve().parents[2]
HEAVY = ("torch", "transformers", "mlflow", "optuna", "prefect", "sklearn", "pandas", "matplotlib", "umap", "dvc")


def python(code: str, cwd: Path = REPO) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code], cwd=cwd, capture_output=True, text=True, timeout=120, check=False
    )


def test_imports_point_one_way():
    """import-linter holds the contracts of pyproject.toml."""
    done = subprocess.run(
        [str(Path(sys.executable).parent / "lint-imports")],
        cwd=REPO,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("args", [["--help"], ["run", "--help"], ["models", "list"]])
def test_the_command_line_starts_without_anything_heavy(args):
    """Help and the catalogue load no deep-learning, tracking or orchestration library."""
    code = (
        "import sys\nfrom semspec.cli import main\n"
        f"try:\n    main({args!r})\nexcept SystemExit:\n    pass\n"
        f"print('LOADED', [m for m in {HEAVY!r} if m in sys.modules])"
    )
    done = python(code)
    assert "LOADED []" in done.stdout, done.stdout[-500:] + done.stderr


def test_flows_do_not_postpone_annotations():
    """Prefect needs real types on a flow's parameters, or runs from its UI fail."""
    flows = list((REPO / "flows").glob("*.py"))
    assert flows
    for path in flows:
        assert "\nfrom __future__ import annotations" not in path.read_text(encoding="utf-8")


def test_stage_names_of_cli_stages_and_dvc_agree():
    """One list of stages in three places."""
    import yaml

    from semspec.cli import STAGE_NAMES
    from semspec.stages import STAGES

    in_dvc = list(yaml.safe_load((REPO / "dvc.yaml").read_text(encoding="utf-8"))["stages"])
    assert list(STAGES) == list(STAGE_NAMES) == in_dvc

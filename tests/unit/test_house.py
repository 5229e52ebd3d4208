"""The rules of the house: imports point one way, the command line starts light, flows stay readable by Prefect."""

from __future__ import annotations

import hashlib
import json
import re
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


def test_the_tests_have_the_parameters_of_the_project():
    """Names and remarks; the values in params.yaml are the user's, and a run may add to it."""

    def names(path: Path) -> set[str]:
        lines = path.read_text(encoding="utf-8").splitlines()
        return {re.sub(r":[^#]*", ": ", line).strip() for line in lines if re.match(r" *[\w#]", line)}

    assert names(REPO / "tests/defaults/params.yaml") <= names(REPO / "params.yaml")


def test_flows_do_not_postpone_annotations():
    """Prefect needs real types on a flow's parameters, or runs from its UI fail."""
    flows = list((REPO / "flows").glob("*.py"))
    assert flows
    for path in flows:
        assert "\nfrom __future__ import annotations" not in path.read_text(encoding="utf-8")


def test_stage_names_of_cli_stages_and_dvc_agree():
    """One list of stages in three places."""
    import yaml

    from semspec.arguments import STAGE_NAMES
    from semspec.stages import STAGES

    in_dvc = list(yaml.safe_load((REPO / "dvc.yaml").read_text(encoding="utf-8"))["stages"])
    assert list(STAGES) == list(STAGE_NAMES) == in_dvc


def test_the_readme_says_what_the_published_runs_found():
    """Every figure of its tables of methods is that of the run to which it links last before the table."""
    names = {"speed-up (total)": "Speed-up (total)", "steps accepted": "Acceptance rate (steps)", "cut off": "Cut off"}
    found: dict[str, dict[str, str]] = {}
    columns, compared = [], 0
    for line in (REPO / "README.md").read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in line.split("|")[1:-1]]
        if links := re.findall(r"\]\((results/[a-z0-9_/]+)\)", line):
            header, _, *rows = (
                [cell.strip() for cell in row.split("|")[1:-1]]
                for row in (REPO / links[-1] / "results.md").read_text(encoding="utf-8").splitlines()
                if row.startswith("|")
            )
            found = {row[0]: dict(zip(header, row, strict=True)) for row in rows}
        elif cells and cells[0] == "method":
            columns = [names.get(cell, cell) for cell in cells]
        elif cells and cells[0].startswith("`") and columns and found:
            row = found[cells[0].split("`")[1]]
            for column, cell in zip(columns[1:], cells[1:], strict=True):
                if cell not in ("", "1", "all"):
                    assert cell == row[column], (cells[0], column)
                    compared += 1
    assert compared >= 60


PUBLISHED = pytest.mark.parametrize(
    "folder", sorted((REPO / "results").glob("published/*")), ids=lambda folder: folder.name
)


def hashes_of(folder: Path) -> set[str]:
    """Of its params.yaml as it stands, and with the parameters that there are by now."""
    from ruamel.yaml import YAML

    from semspec import config, schema
    from semspec.provenance import params_sha256

    told = YAML(typ="safe").load(folder / "params.yaml")
    text = json.dumps({name: told[name] for name in told.keys() - schema.ASIDE}, sort_keys=True)
    return {hashlib.sha256(text.encode()).hexdigest(), params_sha256(config.load(folder))}


@PUBLISHED
def test_a_published_run_can_be_made_again(folder):
    """Its params.yaml asks for the methods and problems that its results have, and is what they were made with."""
    from semspec import config
    from semspec.files import read_json

    chosen, summary = config.load(folder).bench, read_json(folder / "summary.json")
    made = summary["provenance"]
    assert {*chosen.methods, *chosen.variants} == set(summary["methods"])
    assert chosen.dataset == made["dataset"]
    assert {m["n"] for m in summary["methods"].values()} == {chosen.limit}
    if "probes" in made:  # beside older ones lie parameters with the names and defaults of a later day
        assert made["params_sha256"] in hashes_of(folder)


@PUBLISHED
def test_a_published_summary_is_that_of_its_rows(folder):
    """Every metric and interval follows from results.jsonl, to the last rounding."""
    from semspec import config
    from semspec.bench import runner, summarize

    rows, summary = runner.read(folder)
    if "probes" not in summary["provenance"]:
        pytest.skip("measured when some metrics were defined otherwise")
    settings = config.load(folder)
    found = summarize(rows, settings.bench.bootstrap, settings.seed)
    assert found.keys() == summary["methods"].keys()
    for name, metrics in found.items():
        flat, said = config.flatten(metrics), config.flatten(summary["methods"][name])
        assert flat.keys() == said.keys()
        for key, value in flat.items():
            undefined = value is None or said[key] is None
            assert value == (said[key] if undefined else pytest.approx(said[key], rel=1e-9)), (name, key)

"""Shared test set-up: helpers in tests/ are importable, PyTorch keeps to one thread, a test leaves no trace."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

# the files that take longest, the longest first; `test_world_real` trains in two processes, so it comes later
LONGEST = (
    "test_pipeline_real",
    "test_exact",
    "test_serving",
    "test_engine_real",
    "test_exact_sampled",
    "test_world_real",
    "test_pipeline",
    "test_planning",
    "test_search",
    "test_tracking",
    "test_page",
    "test_workers",
    "test_remote",
)


def pytest_collection_modifyitems(items):
    """Long files begin first (of xdist: with `--no-loadscope-reorder`), so that none is left alone at the end."""
    places = {name: place for place, name in enumerate(LONGEST)}
    items.sort(key=lambda item: places.get(item.path.stem, len(places)))


@pytest.fixture(autouse=True)
def same_as_before():
    """Undo what a test, with the fixtures that are its own, does to the environment and to PyTorch's threads."""
    variables, torch = dict(os.environ), sys.modules.get("torch")
    threads = torch.get_num_threads() if torch else None
    yield
    for name in os.environ.keys() - variables.keys():
        del os.environ[name]
    os.environ.update(variables)
    if torch and torch.get_num_threads() != threads:
        torch.set_num_threads(threads)


@pytest.fixture
def here(tmp_path, monkeypatch):
    """The current folder, in which there is nothing but a params.yaml, whatever the user's own is."""
    shutil.copy(Path(__file__).parent / "defaults/params.yaml", tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture(scope="session")
def server():
    """The address of one real Prefect server, used the way a user with an own server would."""
    from semspec.quiet import quiet

    quiet(Path(__file__).resolve().parents[1])
    from prefect.settings import PREFECT_API_URL
    from prefect.testing.utilities import prefect_test_harness

    with prefect_test_harness(server_startup_timeout=600):
        yield PREFECT_API_URL.value()


@pytest.fixture
def no_drawing(monkeypatch):
    """Figures are made but not drawn, for tests that look at words."""
    from matplotlib import pyplot

    from semspec.report import figures

    def save(figure, folder: Path, name: str) -> str:
        pyplot.close(figure)
        return f'<svg id="{name}"></svg>'

    monkeypatch.setattr(figures, "save", save)

"""Shared test set-up: helpers in tests/ are importable, and PyTorch keeps to one thread."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")


@pytest.fixture(scope="session")
def server():
    """The address of one real Prefect server, used the way a user with an own server would."""
    from semspec.quiet import quiet

    quiet(Path(__file__).resolve().parents[1])
    from prefect.settings import PREFECT_API_URL
    from prefect.testing.utilities import prefect_test_harness

    with prefect_test_harness(server_startup_timeout=600):
        yield PREFECT_API_URL.value()

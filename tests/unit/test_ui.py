"""What a flow tells Prefect's UI."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from semspec import ui


@pytest.fixture
def told(monkeypatch):
    """(percent, text) of each message to the server; `told.now` is the clock."""
    import prefect.artifacts

    found = SimpleNamespace(messages=[], now=0.0)
    monkeypatch.setattr(prefect.artifacts, "create_progress_artifact", lambda **kw: "id")
    monkeypatch.setattr(
        prefect.artifacts, "update_progress_artifact", lambda id, done, says: found.messages.append((done, says))
    )
    monkeypatch.setattr(ui.time, "monotonic", lambda: found.now)
    return found


def test_a_bar_that_moves_often_is_told_now_and_then(told):
    """A call to the server takes longer than many a step of a bar, and the stage waits for it."""
    progress = ui.Progress(["sample", "bench"])
    progress.step("bench")
    for i in range(100):
        told.now = i / 10  # ten states a second
        progress.bar(f"bench: {i}%|####| {i}/100")
    progress.bar("no bar at all")
    progress.done()
    (begun, *bars, done) = told.messages
    assert begun == (50, "2 of 2: bench") and done == (100, "done")
    assert [b[0] for b in bars] == pytest.approx([50, 60, 70, 80, 90]), "every two seconds"

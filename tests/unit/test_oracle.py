"""What answers cost in passes of the target, by hand."""

from __future__ import annotations

import pytest
from fake_results import row

from semspec.world.oracle import gains, passes

SHARE = 0.25  # of a pass of the target, a pass of the draft
ROWS = [
    row(0, "target", target_passes=40),
    row(1, "target", target_passes=20, correct=False),
    # 36 tokens drafted and 1 read in place of a rejected step; 8 written and 3 verifications by the target
    row(0, "semantic", draft_tokens=30, discarded_tokens=6, offered=3, accepted=2, target_passes=8, verifications=3),
    # all kept: 19 tokens drafted, 2 verifications
    row(1, "semantic", draft_tokens=19, offered=2, accepted=2, verifications=2),
    row(0, "draft", output_tokens=48, draft_tokens=48, correct=False),
]


def test_an_answers_cost_in_passes():
    """The draft pays for what is thrown away and for each step of the target's that it reads, at its share."""
    assert [passes(r, SHARE) for r in ROWS] == [40, 20, 8 + 3 + 37 / 4, 2 + 19 / 4, 12]


def test_gains_are_of_summed_costs():
    """Repeats and methods whose passes are other ones are left out; without the target there is nothing to gain."""
    others = [row(0, "target", repeat=1, target_passes=999), row(0, "specreason", target_passes=999)]
    found = gains([*ROWS, *others], SHARE)
    semantic = (20.25 + 6.75) / 2
    assert found == {
        "target": {"pass_at_1": 0.5, "passes": 30.0, "speedup": 1.0},
        "draft": {"pass_at_1": 0.0, "passes": 12.0, "speedup": 2.5},
        "semantic": {"pass_at_1": 1.0, "passes": semantic, "speedup": pytest.approx(30 / semantic)},
    }
    assert gains([r | {"method": "oracle"} for r in ROWS[2:4]], SHARE) == {
        "oracle": {"pass_at_1": 1.0, "passes": semantic}
    }

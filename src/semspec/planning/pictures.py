"""The plan's picture: numbers in, a matplotlib figure out. Looks are those of `semspec.report.figures`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from semspec.planning.placements import Placement, Timed
from semspec.report.figures import INK, blank

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def plan(timed: Sequence[Timed], placed: Sequence[Placement], length: float, kept: float | None) -> Figure:
    """Left: milliseconds of a pass by its width. Right: speed-up by acceptance, and the region in which it pays."""
    figure, (costs, gains) = blank(11, 4.2, 2)
    for i, t in enumerate(timed):
        style = "-" if t.role == "target" else "--"
        curve = t.curve("judged")
        ms = [1e3 * s for s in curve.seconds]
        costs.plot(curve.widths, ms, style, marker="o", markersize=3, color=f"C{i % 10}", label=f"{t.role}: {t.label}")
    costs.set_xscale("log", base=2)
    costs.set_yscale("log")
    costs.set_xlabel("tokens of a pass (1 = a token is written)")
    costs.set_ylabel("milliseconds of the pass")
    costs.legend(fontsize=7)
    shares = np.linspace(0, 1, 101)
    for i, p in enumerate(placed):
        label = f"{p.draft.label} → {p.target.engine}"
        gains.plot(shares, [p.pair().best_gamma(a, length)[1] for a in shares], color=f"C{i % 10}", label=label)
    low, high = gains.get_ylim()
    gains.axhspan(1, max(high, 1.05), color="#009e73", alpha=0.08, linewidth=0)
    gains.set_ylim(low, max(high, 1.05))
    gains.axhline(1, color=INK, linewidth=1)
    if kept is not None:
        gains.axvline(kept, color=INK, linewidth=1, linestyle=":")
    gains.set_xlim(0, 1)
    gains.set_xlabel(f"share of drafted steps that is kept (steps of {length:.0f} tokens)")
    gains.set_ylabel("speed-up over the fastest target alone")
    gains.legend(fontsize=7, loc="upper left")
    return figure

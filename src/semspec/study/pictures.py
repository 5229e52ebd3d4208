"""The studies' pictures: numbers in, a matplotlib figure out. Looks are those of `semspec.report.figures`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from semspec.report.figures import blank

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_COLOURS = ("#0072b2", "#d55e00", "#009e73")
_MARKERS = ("o", "s", "D")
AXIS = "rank correlation, the draft's samples of unseen questions"


def ablation(
    names: Sequence[str],
    values: Mapping[str, Sequence[Mapping[str, Any] | None]],
    layers: Mapping[str, Sequence[float]] | None = None,
) -> Figure:
    """A row for each of `names`, a dot with its interval for each entry of `values`; at the right curves by layer."""
    wide = {"width_ratios": [3, 2]} if layers else None
    figure, axes = blank(10.5 if layers else 7, 0.9 + 0.36 * len(names), 2 if layers else 1, gridspec_kw=wide)
    ax = axes[0] if layers else axes
    for i, (title, scores) in enumerate(values.items()):
        known = [(k, s) for k, s in enumerate(scores) if s]
        at = np.array([k for k, _ in known]) + 0.18 * (i - 1)
        middle = np.array([s["spearman"] for _, s in known])
        low, high = (np.array([s["spearman_ci"][j] for _, s in known]) for j in (0, 1))
        spread = np.maximum(0, [middle - low, high - middle])
        style = {"color": _COLOURS[i % 3], "marker": _MARKERS[i % 3], "markersize": 5, "elinewidth": 1}
        ax.errorbar(middle, at, xerr=spread, linestyle="none", label=title, **style)
    ax.set_yticks(range(len(names)), names)
    ax.invert_yaxis()
    ax.set_xlabel(AXIS)
    figure.legend(*ax.get_legend_handles_labels(), loc="outside upper center", ncols=3)
    if layers:
        for i, (title, curve) in enumerate(layers.items()):
            axes[1].plot(curve, color=_COLOURS[i], marker=_MARKERS[i], markersize=3, label=title)
        axes[1].set_xlabel("layer, its hidden states alone (ridge)")
        axes[1].set_ylabel("rank correlation")
    return figure


def scaling(curves: Mapping[str, Mapping[str, Sequence[tuple[int, float]]]]) -> Figure:
    """A panel for each thing that is thinned out: {what: {title: (how many are left, rank correlation)}}."""
    figure, axes = blank(3.4 * len(curves) + 0.6, 3.6, len(curves), sharey=True, squeeze=False)
    for ax, (what, lines) in zip(axes[0], curves.items(), strict=True):
        for i, (title, points) in enumerate(lines.items()):
            x, y = zip(*points, strict=True)
            ax.plot(x, y, color=_COLOURS[i % 3], marker=_MARKERS[i % 3], markersize=5, label=title)
        head, _, names = what.partition(": ")
        ax.set_xlabel(head)
        if names:
            ax.set_xticks(range(len(points)), [n.strip() for n in names.split(",")])
        elif max(x) / min(x) >= 4:
            ax.set_xscale("log", base=2)
            ax.set_xticks(x, [str(n) for n in x])
    axes[0][0].set_ylabel("rank correlation")
    figure.legend(*axes[0][0].get_legend_handles_labels(), loc="outside upper center", ncols=3)
    return figure

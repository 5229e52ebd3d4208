"""A search's pictures: numbers in, a matplotlib figure out. Looks are those of `semspec.report.figures`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from semspec.report.figures import COLOURS, INK, blank, looks

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from semspec.tuning.live import Live
    from semspec.tuning.search import Found


def pareto(
    found: Sequence[Found],
    feasible: Sequence[bool],
    front: Sequence[Found],
    known: Mapping[str, Mapping[str, float]],
    winner: int | None,
) -> Figure:
    """Pass@1 against modelled latency: every trial, the front, and `known` ({name: figures}) beside them."""
    figure, ax = blank(6.4, 4.2)
    for yes, label, colour in ((True, "trial", "#8c959f"), (False, "beyond a limit", "#e69f00")):
        points = [t for t, ok in zip(found, feasible, strict=True) if ok == yes]
        if points:
            x, y = [t.latency_s for t in points], [100 * t.pass_at_1 for t in points]
            ax.scatter(x, y, s=18, color=colour, alpha=0.5, linewidths=0, label=label)
    if front:
        x, y = [t.latency_s for t in front], [100 * t.pass_at_1 for t in front]
        ax.step(x, y, where="post", color=INK, linewidth=1.2, linestyle="--", alpha=0.7)
        ax.scatter(x, y, s=34, color=COLOURS["semantic"], label="Pareto front", zorder=3)
    for name, (colour, marker) in looks(list(known)).items():
        place = known[name]["latency_s"], 100 * known[name]["pass_at_1"]
        ax.scatter(*place, s=60, marker=marker, color=colour, label=name, zorder=4)
    for t in found:
        if t.number == winner:
            ring = {"facecolors": "none", "edgecolors": INK, "label": "winner", "zorder": 5}
            ax.scatter(t.latency_s, 100 * t.pass_at_1, s=160, **ring)
    ax.set_xlabel("latency (s a question, from counted tokens)")
    ax.set_ylabel("Pass@1 (%), validation questions")
    figure.legend(*ax.get_legend_handles_labels(), loc="outside upper center", ncols=4)
    return figure


def importances(values: Mapping[str, Mapping[str, float]]) -> Figure:
    """How much each parameter decides, a panel for each of {objective: {parameter: share}}."""
    names = sorted({n for v in values.values() for n in v}, key=lambda n: max(v.get(n, 0) for v in values.values()))
    figure, axes = blank(4.2 * len(values) + 1.6, 1.0 + 0.28 * len(names), len(values), sharey=True, squeeze=False)
    for ax, (title, shares) in zip(axes[0], values.items(), strict=True):
        ax.barh(names, [shares.get(n, 0.0) for n in names], color=COLOURS["target"])
        ax.set_xlabel(title)
    return figure


def agreement(found: Sequence[Found], live: Sequence[Live], rank: Mapping[str, float]) -> Figure:
    """Replay against live, a point for each configuration; `rank` is their Spearman."""
    replayed: dict[int, Any] = {t.number: t for t in found}
    titles = {"pass_at_1": ("Pass@1 (%)", 100), "latency_s": ("latency (s)", 1), "combined": ("combined", 1)}
    figure, axes = blank(9.6, 3.4, len(titles))
    for ax, (name, (title, unit)) in zip(axes, titles.items(), strict=True):
        x = [unit * getattr(replayed[v.number], name) for v in live]
        y = [unit * getattr(v, name) for v in live]
        ax.scatter(x, y, s=28, color=COLOURS["semantic"])
        ax.set_xlabel(f"{title}, replay")
        ax.set_ylabel("live")
        ax.set_title(f"Spearman {rank[name]:.2f}", fontsize=10)
    return figure

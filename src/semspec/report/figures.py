"""Figures of the report, one function each: numbers in, a matplotlib figure out; `save` writes SVG and PNG.

Bytes are deterministic (fixed hash salt, no date). `inline` makes an SVG safe to put into a page beside
others: unique ids, and the ink colour taken from the page, so that it reads in the light and in the dark.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from semspec.bench.metrics import pareto
from semspec.files import atomic

if TYPE_CHECKING:
    from matplotlib.figure import Figure

INK = "#24292f"  # replaced by the page's text colour when inlined
# Okabe and Ito's palette first, distinguishable with every common colour vision; markers and dashes differ as well.
COLOURS = {"target": "#0072b2", "draft": "#d55e00", "semantic": "#009e73"}
_MORE = (
    *("#cc79a7", "#e69f00", "#56b4e9", "#8c564b", "#999933", "#6a3d9a", "#7f7f7f", "#c2185b"),
    *("#17becf", "#ddcc77", "#f4a6a0", "#5c7cfa", "#84a98c", "#aa4499"),
)  # of everything without a colour of its own
_RULE_COLOURS = ("#009e73", "#0072b2", "#d55e00", "#cc79a7")
_AUTHOR_MARKERS = (("o", "target"), ("^", "draft"))
_FIXED_MARKERS = {"target": "s", "draft": "^", "semantic": "D"}
_MORE_MARKERS = ("o", "v", "P", "X", "<")
_MARKERS = (*_FIXED_MARKERS.values(), *_MORE_MARKERS)
# none is that of a reference line, which is "--" or ":"
_DASHES: tuple[Any, ...] = ("-", (0, (6, 1.5)), "-.", (0, (3, 1, 1, 1, 1, 1)))
PHASE_TITLES = {
    "draft": "draft writes",
    "verify": "target reads",
    "pool": "summing states",
    "score": "scoring",
    "write": "target writes",
}
_PHASE_COLOURS = ("#d55e00", "#56b4e9", "#009e73", "#cc79a7", "#0072b2")
LOSSES = {"train_loss": "training", "val_loss": "held-out questions"}
_RC = {
    "font.size": 10,
    "font.family": "DejaVu Sans",
    "svg.fonttype": "path",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": INK,
    "grid.alpha": 0.12,
    "legend.frameon": False,
    **{k: INK for k in ("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color")},
}


def looks(names: Sequence[str]) -> dict[str, tuple[str, str]]:
    """{method: (colour, marker)}; no two of `names` share a colour as long as there are colours left."""
    others = [n for n in names if n not in COLOURS]
    free = {n: (_MORE[i % len(_MORE)], _MORE_MARKERS[i % len(_MORE_MARKERS)]) for i, n in enumerate(others)}
    return {n: (COLOURS[n], _FIXED_MARKERS[n]) if n in COLOURS else free[n] for n in names}


def blank(width: float = 5.2, height: float = 3.7, columns: int = 1, rows: int = 1, **more: Any) -> tuple[Figure, Any]:
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    mpl.rcParams.update(_RC)
    return plt.subplots(rows, columns, figsize=(width, height), layout="constrained", **more)


def save(figure: Figure, folder: Path, name: str) -> str:
    """Write NAME.svg and NAME.png into `folder` and return the SVG for a page (see `inline`)."""
    import matplotlib as mpl
    from matplotlib import pyplot as plt

    with mpl.rc_context({"svg.hashsalt": name}):
        with atomic(folder / f"{name}.png") as t:
            figure.savefig(t, dpi=160, facecolor="white", metadata={"Software": None})
        with atomic(folder / f"{name}.svg") as t:
            figure.savefig(t, transparent=True, metadata={"Date": None, "Creator": None})
    plt.close(figure)
    return inline((folder / f"{name}.svg").read_text(encoding="utf-8"), name)


def inline(svg: str, name: str) -> str:
    """An SVG document as an element of a page: ids prefixed with `name`, the page's ink and size."""
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>\s*", "", svg, flags=re.S)
    svg = re.sub(r'\bid="', f'id="{name}-', svg)
    svg = re.sub(r'xlink:href="#', f'xlink:href="#{name}-', svg)
    svg = re.sub(r"url\(#", f"url(#{name}-", svg)
    svg = re.sub(r'(<svg[^>]*?) width="[^"]*"', r"\1", svg, count=1)
    svg = re.sub(r'(<svg[^>]*?) height="[^"]*"', r"\1", svg, count=1)
    svg = svg.replace("<svg ", '<svg aria-hidden="true" focusable="false" ', 1)
    return svg.replace(INK, "currentColor").strip()


def quality_speed(methods: Mapping[str, Mapping[str, Any]], names: Sequence[str]) -> Figure:
    """Pass@1 against latency, one point per method, with both 95% intervals; methods off the Pareto front are paler."""
    many, look = len(names) > 6, looks(names)
    figure, ax = blank(9.2, 4.6) if many else blank()
    front = pareto({n: methods[n] for n in names})
    if len(front) > 1:
        x, y = [methods[n]["latency_s"] for n in front], [100 * methods[n]["pass_at_1"] for n in front]
        ax.step(x, y, where="post", color=INK, linewidth=1.2, linestyle="--", zorder=3)  # on the bars that it follows
    for name in names:
        m = methods[name]
        x, y = m["latency_s"], 100 * m["pass_at_1"]
        x_ci = m.get("latency_s_ci") or [x, x]
        y_ci = [100 * v for v in m.get("pass_at_1_ci") or [m["pass_at_1"]] * 2]
        ax.errorbar(
            [x],
            [y],
            xerr=[[max(0, x - x_ci[0])], [max(0, x_ci[1] - x)]],
            yerr=[[max(0, y - y_ci[0])], [max(0, y_ci[1] - y)]],
            fmt=look[name][1],
            color=look[name][0],
            markersize=8,
            elinewidth=1.4,
            capsize=3,
            alpha=1.0 if name in front else 0.35,
            label=name if name in front else f"{name} (dominated)",
        )
    ax.set(xlabel="Latency, seconds per problem (left is faster)", ylabel="Pass@1, %", ylim=(-5, 105))
    ax.set_xlim(left=0)
    where = "outside right upper" if many else "outside upper center"
    figure.legend(loc=where, ncols=1 if many else min(2, len(names)), fontsize=9)
    return figure


def paper_plane(
    sources: Sequence[tuple[str, Mapping[str, Mapping[str, tuple[float, float]]]]], methods: Mapping[str, str]
) -> Figure:
    """The paper's Figure 3: a row of panels per source, a panel per benchmark, Pass@1 over latency.

    sources: [(title, {benchmark: {row: (latency, Pass@1)}})], all with the same benchmarks; methods: {row: method}.
    """
    from matplotlib.lines import Line2D

    groups = list(sources[0][1])
    figure, axes = blank(2.1 * len(groups) + 0.6, 2.2 * len(sources) + 0.5, len(groups), len(sources), squeeze=False)
    shown = list(dict.fromkeys(m for _, panels in sources for panel in panels.values() for m in panel))
    by_method = looks([methods[m] for m in shown])
    look = {m: by_method[methods[m]] for m in shown}
    for row, (title, panels) in zip(axes, sources, strict=True):
        row[0].set_ylabel("Pass@1, %")
        for ax, group in zip(row, groups, strict=True):
            for method, (x, y) in panels[group].items():
                ax.plot([x], [100 * y], look[method][1], color=look[method][0], markersize=7)
            ax.set_title(group, fontsize=9)
            if panels[group]:
                ax.set_xlim(left=0, right=1.1 * max(x for x, _ in panels[group].values()))
                ax.margins(y=0.15)
            else:
                ax.set(xticks=[], yticks=[])
                text = "not in the paper" if title.startswith("The paper") else "not run"
                ax.text(0.5, 0.5, text, transform=ax.transAxes, ha="center", va="center", alpha=0.6)
        row[len(groups) // 2].set_xlabel(f"Latency, s. {title}", fontsize=9)
    handles = [Line2D([], [], marker=k, color=c, linestyle="", label=m) for m, (c, k) in look.items()]
    figure.legend(handles=handles, loc="outside upper center", ncols=min(6, max(1, len(handles))), fontsize=9)
    return figure


def by_setting(rows: Sequence[str], measured: Mapping[str, Mapping[str, Mapping[str, Any]]]) -> Figure:
    """The paper's Figures 4 and 5: Pass@1 and tokens a second for each of `rows`, a line for each benchmark.

    measured: {benchmark: {row: its summary}}; Pass@1 with its 95% interval.
    """
    figure, axes = blank(8.6, 3.6, 2)
    for i, (group, summaries) in enumerate(measured.items()):
        known = [(place, summaries[row]) for place, row in enumerate(rows) if row in summaries]
        at = np.array([place for place, _ in known]) + 0.06 * (i - (len(measured) - 1) / 2)
        style = {
            "color": _MORE[i % len(_MORE)],
            "marker": _MORE_MARKERS[i % len(_MORE_MARKERS)],
            "linestyle": _DASHES[i % len(_DASHES)],
            "linewidth": 1.2,
        }
        y = np.array([100 * s["pass_at_1"] for _, s in known])
        ends = np.array([s.get("pass_at_1_ci") or [s["pass_at_1"]] * 2 for _, s in known])
        spread = np.maximum(0, [y - 100 * ends[:, 0], 100 * ends[:, 1] - y])
        axes[0].errorbar(at, y, yerr=spread, elinewidth=1.2, capsize=3, label=group, **style)
        axes[1].plot(at, np.array([s["tps"] for _, s in known], dtype=float), **style)
    for ax, title in zip(axes, ("Pass@1, %", "Tokens per second"), strict=True):
        ax.set_xticks(range(len(rows)), rows)
        ax.set(ylabel=title, xlim=(-0.5, len(rows) - 0.5))
    axes[0].set_ylim(-5, 105)
    axes[1].margins(y=0.12)
    axes[1].set_ylim(bottom=0)
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside upper center", ncols=min(5, len(measured)))
    return figure


def phases(seconds: Mapping[str, Mapping[str, float]], total: Mapping[str, float]) -> Figure:
    """Where a problem's time goes: mean seconds of each phase, one bar per method; `total` has the whole latency."""
    names = list(seconds)[::-1]
    figure, ax = blank(6.4, 1.0 + 0.42 * len(names))
    left = np.zeros(len(names))
    for i, (phase, title) in enumerate(PHASE_TITLES.items()):
        width = np.array([seconds[n][phase] for n in names])
        ax.barh(names, width, left=left, color=_PHASE_COLOURS[i], label=title, height=0.62)
        left += width
    rest = np.maximum(0, np.array([total[n] for n in names]) - left)
    ax.barh(names, rest, left=left, color=INK, alpha=0.25, label="prompt and bookkeeping", height=0.62)
    ax.set(xlabel="Seconds per problem")
    ax.grid(axis="y", visible=False)
    figure.legend(loc="outside upper center", ncols=3, fontsize=9)
    return figure


def reliability(true: np.ndarray, predicted: np.ndarray, role: str, bins: int = 8) -> Figure:
    """Mean label against mean prediction in equal-count bins ([n] each, in [0, 1])."""
    figure, ax = blank(4.4, 3.9)
    ax.plot([0, 1], [0, 1], color=INK, linewidth=1, linestyle="--", label="perfect")
    parts = [p for p in np.array_split(np.argsort(predicted, kind="stable"), bins) if len(p)]
    x = [float(predicted[p].mean()) for p in parts]
    y = [float(true[p].mean()) for p in parts]
    sizes = [18 + 90 * len(p) / len(true) for p in parts]
    ax.plot(x, y, color=COLOURS[role], linewidth=1.2, alpha=0.7)
    ax.scatter(x, y, s=sizes, color=COLOURS[role], label=f"{len(parts)} bins of equal count")
    ax.set(xlabel="Predicted semantic probability", ylabel="Mean label", xlim=(-0.03, 1.03), ylim=(-0.03, 1.03))
    ax.legend(loc="upper left", fontsize=9)
    return figure


def tradeoff(curves: Mapping[str, tuple[np.ndarray, np.ndarray]], true_share: float, chance: float) -> Figure:
    """Share of accepted steps that the target never said, against the share accepted; one line per rule.

    curves: {title: (share accepted, share never said)}; chance: what accepting at random gives.
    """
    figure, ax = blank(5.2, 3.9)
    for place, (title, (share, unsaid)) in enumerate(curves.items()):
        style = {"color": _RULE_COLOURS[place % len(_RULE_COLOURS)], "linestyle": _DASHES[place % len(_DASHES)]}
        ax.plot(100 * share, 100 * unsaid, label=title, **style)
    ax.axhline(100 * chance, color=INK, linewidth=1, linestyle="--", label="at random")
    ax.axvline(100 * true_share, color=INK, linewidth=1, linestyle=":", label="accepted by the true rule")
    ax.set(xlabel="Draft steps accepted, %", ylabel="Of those, never said by the target, %", xlim=(0, 100))
    ax.set_ylim(bottom=0)
    ax.legend(fontsize=9)
    return figure


def training(histories: Mapping[str, Sequence[Mapping[str, float]]]) -> Figure:
    """Loss per epoch of each role's network; an epoch's entry holds the keys of `LOSSES`."""
    from matplotlib.lines import Line2D

    roles = list(histories)
    figure, axes = blank(4.4, 3.4, columns=len(roles), sharey=True)
    for ax, role in zip(np.atleast_1d(axes), roles, strict=True):
        for style, key in zip(("-", "--"), LOSSES, strict=True):
            points = [(i + 1, e[key]) for i, e in enumerate(histories[role]) if e.get(key) is not None]
            if points:
                ax.plot(*zip(*points, strict=True), style, color=COLOURS[role], label=LOSSES[key])
        ax.set(title=f"{role}'s probe", xlabel="Epoch")
        ax.set_ylim(bottom=0)
    np.atleast_1d(axes)[0].set_ylabel("Squared error")
    handles = np.atleast_1d(axes)[0].get_lines()
    handles = [Line2D([], [], color=INK, linestyle=h.get_linestyle(), label=h.get_label()) for h in handles]
    figure.legend(handles=handles, loc="outside upper center", ncols=2)
    return figure


def state_map(points: np.ndarray, values: np.ndarray, authors: Sequence[str], axis_name: str) -> Figure:
    """Map of hidden states ([n, 2]) coloured by semantic probability; the marker's shape says the author."""
    figure, ax = blank(5.2, 4.2)
    authors_array = np.asarray(authors)
    scatter = None
    for marker, author in _AUTHOR_MARKERS:
        chosen = authors_array == author
        if chosen.any():
            scatter = ax.scatter(
                points[chosen, 0],
                points[chosen, 1],
                c=values[chosen],
                cmap="viridis",
                vmin=0,
                vmax=1,
                s=22 if len(points) < 1000 else 9,
                marker=marker,
                linewidths=0.3,
                edgecolors=INK,
                rasterized=len(points) > 400,
            )
    if scatter is not None:
        figure.colorbar(scatter, ax=ax, label="Semantic probability under the target", shrink=0.85)
    ax.set(xlabel=f"{axis_name} 1", ylabel=f"{axis_name} 2", xticks=[], yticks=[])
    from matplotlib.lines import Line2D

    handles = [
        Line2D([], [], color=INK, marker=m, linestyle="", markersize=5, label=f"written by the {author}")
        for m, author in _AUTHOR_MARKERS
        if author in authors
    ]
    figure.legend(handles=handles, loc="outside upper center", ncols=2, fontsize=9)
    return figure


def ratios(ratio: np.ndarray, accepted: np.ndarray) -> Figure:
    """Distribution of p/q over drafted steps ([n]), by verdict; a ratio above 2 counts as 2."""
    figure, ax = blank()
    edges = np.linspace(0, 2, 21)
    groups = [np.clip(ratio[accepted], 0, 2), np.clip(ratio[~accepted], 0, 2)]
    labels = [f"accepted ({len(groups[0])})", f"rejected ({len(groups[1])})"]
    _, _, bars = ax.hist(groups, bins=edges, stacked=True, color=[COLOURS["semantic"], COLOURS["draft"]], label=labels)
    for patch in bars[1] if len(groups) > 1 else []:
        patch.set(hatch="////", edgecolor=INK, linewidth=0.4)
    ax.axvline(1, color=INK, linewidth=1, linestyle="--")
    ax.set(
        xlabel="p / q (semantic probability under the target over that under the draft)",
        ylabel="Drafted steps",
        xlim=(0, 2),
    )
    ax.yaxis.get_major_locator().set_params(integer=True)
    figure.legend(loc="outside upper center", ncols=2)
    return figure


def project(states: np.ndarray, seed: int, projection: str = "umap") -> tuple[np.ndarray, str]:
    """Hidden states [n, d] -> ([n, 2], the name of the axes): the first two principal components, or UMAP on 50.

    With fewer than 15 states there is no neighbourhood to keep, and UMAP gives way to the principal components.
    """
    x = states.astype(np.float64)
    if projection == "pca" or len(x) < 15:
        x = x - x.mean(axis=0)
        _, _, directions = np.linalg.svd(x, full_matrices=False)
        points = x @ directions[:2].T
        return np.pad(points, ((0, 0), (0, 2 - points.shape[1]))), "PCA"
    import umap
    from sklearn.decomposition import PCA

    reduced = PCA(min(50, *x.shape), svd_solver="full", random_state=seed).fit_transform(x)
    reducer = umap.UMAP(n_components=2, n_neighbors=min(15, len(x) - 1), random_state=seed, n_jobs=1)
    with warnings.catch_warnings():  # states in separate islands: it says so and starts from random places
        warnings.simplefilter("ignore")
        return np.asarray(reducer.fit_transform(reduced)), "UMAP"

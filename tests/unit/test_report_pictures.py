"""The pictures of a report: what is drawn, and that it can be told apart."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import fake_results as fake
import numpy as np
import pytest
from matplotlib import pyplot

from semspec.bench.metrics import pareto
from semspec.report import figures, paper, published
from semspec.report.pictures import evenly


def test_map_of_few_states_is_principal_components() -> None:
    """Under 15 states the projection is PCA and keeps all of a planar cloud's distances."""
    rng = np.random.default_rng(0)
    flat = rng.normal(size=(9, 2)) @ rng.normal(size=(2, 30))
    points, axis = figures.project(flat, seed=0)
    assert axis == "PCA"
    assert np.linalg.norm(points[0] - points[5]) == pytest.approx(np.linalg.norm(flat[0] - flat[5]))


@pytest.mark.parametrize(("n", "neighbours"), [(15, 14), (60, 15)])
def test_map_of_more_states_is_umap_of_their_components(monkeypatch, n: int, neighbours: int) -> None:
    """At most 50 components, at most 15 neighbours, and the seed; where principal components are wanted, no UMAP."""
    asked: dict = {}

    class Umap:
        def __init__(self, **how) -> None:
            asked.update(how)

        def fit_transform(self, x: np.ndarray) -> np.ndarray:
            asked["shape"] = x.shape
            return x[:, :2]

    monkeypatch.setitem(sys.modules, "umap", SimpleNamespace(UMAP=Umap))
    states = np.random.default_rng(0).normal(size=(n, 64))
    assert figures.project(states, seed=7, projection="pca")[1] == "PCA" and not asked
    points, axis = figures.project(states, seed=7)
    assert axis == "UMAP" and points.shape == (n, 2)
    assert (asked["random_state"], asked["n_neighbors"], asked["shape"]) == (7, neighbours, (n, min(n, 50)))


@pytest.mark.model_full
def test_umap_keeps_far_groups_apart() -> None:
    """The nearest point is of the same group, and the same seed gives the same map."""
    group = np.repeat([0, 1], 30)
    states = np.random.default_rng(0).normal(size=(60, 80)) + 20 * group[:, None]
    points, axis = figures.project(states, seed=0)
    away = np.linalg.norm(points[:, None] - points, axis=2) + np.diag(np.full(60, np.inf))
    assert axis == "UMAP" and (group[away.argmin(1)] == group).mean() > 0.9
    assert np.array_equal(points, figures.project(states, seed=0)[0])


def test_the_map_shows_every_tenth_of_probability_alike() -> None:
    """A tenth with many samples gives as many as the middle one has; the seed decides which."""
    label = np.array([0.0] * 500 + [0.05] * 100 + [0.1] * 8 + [0.3] * 40 + [0.95] * 20 + [1.0] * 20)
    drawn, share = evenly(label, 4000, seed=3)
    tenth = np.minimum(9, (10 * label[drawn] + 1e-9).astype(int))
    assert share == 40 and np.bincount(tenth).tolist() == [40, 8, 0, 40, 0, 0, 0, 0, 0, 40]
    assert (np.diff(drawn) > 0).all() and (drawn == evenly(label, 4000, seed=3)[0]).all()
    assert not np.array_equal(drawn, evenly(label, 4000, seed=4)[0])
    few, share = evenly(label, 40, seed=3)
    assert share == 10 and len(few) == 38


def test_curves_over_a_setting_are_told_apart() -> None:
    """A line for each benchmark, with its intervals, that differs from the others in colour and in dash or marker."""
    summary = fake.METHODS["semantic"] | {"pass_at_1_ci": [0.25, 0.75]}
    lines = {g: {f"γ = {k}": summary for k in (1, 3)} for g in ("AMC23", "AIME24", "Math-500", "gsm8k")}
    figure = figures.by_setting(("γ = 1", "γ = 2", "γ = 3"), lines)
    rate, speed = figure.axes
    drawn = [line for line in speed.lines if len(line.get_xdata()) == 2]
    assert len(drawn) == 4 and all(line.get_ydata().tolist() == [20.0, 20.0] for line in drawn)
    assert len({line.get_color() for line in drawn}) == 4
    assert len({(line.get_marker(), str(line._dash_pattern)) for line in drawn}) == 4
    ends = rate.containers[0].lines[2][0].get_segments()
    assert [s[:, 1].tolist() for s in ends] == [[25.0, 75.0]] * 2
    pyplot.close(figure)


def test_curves_of_rules_differ_in_dash_too() -> None:
    """And none has the dash of a reference line."""
    curve = np.array([0.2, 0.9])
    figure = figures.tradeoff({t: (curve, curve) for t in ("p / q", "p alone", "joint predictor")}, 0.5, 0.3)
    dashes = [str(line._dash_pattern) for line in figure.axes[0].lines]
    assert len(dashes) == len(set(dashes)) == 5
    pyplot.close(figure)


def test_no_two_methods_share_a_colour_in_one_picture() -> None:
    """Whatever methods there are, in whatever order, and in the paper's plane too."""
    everything = ["semantic_hybrid", "specreason", "semantic@gamma=2", "target", "prompt_lookup", "draft", "semantic"]
    for names in (everything, everything[:5], everything[2:], [f"semantic@gamma={i}" for i in range(14)]):
        look = figures.looks(names)
        assert len({colour for colour, _ in look.values()}) == len(names)
        assert all(look[n][0] == figures.COLOURS[n] for n in names if n in figures.COLOURS)
        points = {n: {"latency_s": 1.0 + i, "pass_at_1": 0.5} for i, n in enumerate(names)}
        figure = figures.quality_speed(points, names)
        drawn = [c.lines[0].get_color() for c in figure.axes[0].containers]
        assert len(set(drawn)) == len(names)
        pyplot.close(figure)
    panel = {row: (1.0, 0.5) for row in ("SemanticSpec", "SpecReason", "SpecSampling", "SpecThinking", "Target Model")}
    figure = figures.paper_plane([("mine", {"gsm8k": panel})], paper.METHODS)
    drawn = {line.get_color() for line in figure.axes[0].lines}
    assert len(drawn) == 5 and {figures.COLOURS["target"], figures.COLOURS["semantic"]} < drawn
    pyplot.close(figure)


def test_the_papers_plane_takes_its_points_from_table_4() -> None:
    """Latency and Pass@1 of each method; a panel that was not run has no point."""
    run = paper.Run("results/mine", "a → b", "math500", fake.METHODS, None)
    (title, theirs), _, (mine, ours) = paper.plane(paper.fill(published.TABLE_4, [run]))
    assert published.R1 in title and theirs["AIME24"]["SemanticSpec"] == (86.75, 0.553)
    assert mine.startswith("This run") and ours["Math-500"] == {"Draft Model": (5.0, 0.2), "SemanticSpec": (7.25, 0.5)}
    assert ours["AMC23"] == {}


def test_the_front_holds_what_no_method_dominates() -> None:
    """Off it: worse in both, or equal in one and worse in the other; equal in both stays."""
    points = {"a": (0.5, 1), "b": (0.9, 2), "same": (0.9, 2), "tie": (0.9, 3), "slow": (0.4, 4), "best": (1.0, 9)}
    methods = {n: {"pass_at_1": y, "latency_s": x} for n, (y, x) in points.items()}
    assert pareto(methods) == ["a", "b", "same", "best"]


def test_dominated_methods_are_paler() -> None:
    """The plane draws a method off the front with less ink, and says so in the legend."""
    methods = {"target": {"pass_at_1": 0.9, "latency_s": 2}, "semantic": {"pass_at_1": 0.8, "latency_s": 3}}
    figure = figures.quality_speed(methods, list(methods))
    alphas = {c.get_label(): c.lines[0].get_alpha() for c in figure.axes[0].containers}
    pyplot.close(figure)
    assert alphas["target"] == 1 and alphas["semantic (dominated)"] < 0.5


def test_many_methods_fit_into_the_picture() -> None:
    """Fifteen names, long ones among them: the legend lies within the figure, and no two points look alike."""
    names = ["target", "draft", *(f"semantic@rule=ratio+threshold=0.{i:02}" for i in range(13))]
    found = {n: {"latency_s": 1.0 + i, "pass_at_1": 0.5} for i, n in enumerate(names)}
    figure = figures.quality_speed(found, names)
    figure.canvas.draw()
    box = figure.legends[0].get_window_extent()
    assert box.x0 >= 0 and box.y0 >= 0 and box.x1 <= figure.bbox.x1 and box.y1 <= figure.bbox.y1
    points = [line for line in figure.axes[0].lines if line.get_marker() in figures._MARKERS]
    assert len({(line.get_marker(), str(line.get_color())) for line in points}) == len(names)
    pyplot.close(figure)

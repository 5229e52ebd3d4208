"""The pictures of a report, each with its title and caption: probes, decisions, hidden states, the paper's figures.

Chooses what is drawn and says so; `figures.py` draws.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from semspec.decoding.semantic import Semantic
from semspec.files import read_safetensors
from semspec.probe import evaluation
from semspec.report import figures, paper, published
from semspec.report.inputs import Inputs
from semspec.report.tables import ROLES
from semspec.rules import in_words, ratio

if TYPE_CHECKING:
    import pandas as pd

    from semspec.schema import Decide, Settings


@dataclass
class Picture:
    """A figure as the page shows it; `svg` is markup of ours, never model text."""

    title: str
    caption: str
    svg: str


def quality(methods: Mapping[str, Any], names: Sequence[str], folder: Path) -> Picture:
    """The speed-quality plane of a comparison."""
    caption = (
        "One point per method; bars are 95% intervals over problems. Up and to the left is better. Dashed: the Pareto "
        "front; paler: another method is at least as good in both and better in one."
    )
    svg = figures.save(figures.quality_speed(methods, names), folder, "quality_speed")
    return Picture("Pass@1 against latency", caption, svg)


def time_spent(methods: Mapping[str, Any], names: Sequence[str], folder: Path) -> Picture:
    """Each method's phases."""
    caption = (
        "Mean over problems. Scoring is what lies between the summed states and the verdict; where summing them was "
        "not timed on its own it is part of drafting and reading."
    )
    figure = figures.phases({n: methods[n]["phases"] for n in names}, {n: methods[n]["latency_s"] for n in names})
    return Picture("Where the time goes", caption, figures.save(figure, folder, "phases"))


def decisions(rows: Sequence[Mapping[str, Any]], rule: Decide | None, folder: Path) -> Picture | None:
    """p / q of what was judged, and the verdicts; None where nothing was. `rule` is the run's, None = not known."""
    values, accepted = judged_ratios(rows)
    if not len(values):
        return None
    caption = (
        f"{len(values)} judged steps{f'; {in_words(rule)}' if rule else ''}. Ratios above 2 count as 2. The rule does "
        "not keep the target's distribution."
    )
    return Picture("p / q of drafted steps", caption, figures.save(figures.ratios(values, accepted), folder, "ratios"))


def judged_ratios(rows: Sequence[Mapping[str, Any]]) -> tuple[np.ndarray, np.ndarray]:
    """p/q and the verdict of every draft step that `semantic` judged; of every judged one where it did not run."""
    own = [r for r in rows if r["method"] == Semantic.name] or rows
    steps = [s for r in own for s in r.get("trace") or [] if s.get("accepted") is not None]
    known = [s for s in steps if s.get("p") is not None and s.get("q")]
    return np.array([s["p"] / s["q"] for s in known]), np.array([s["accepted"] for s in known], dtype=bool)


def probes(inputs: Inputs, folder: Path) -> list[Picture]:
    """A reliability plot of each probe, and the training curves of the networks."""
    out = []
    if inputs.predictions is not None:
        for role in ROLES:
            pair = inputs.predictions[[f"label_{role}", f"pred_{role}"]].dropna().to_numpy(float)
            if len(pair) < 2:
                continue
            svg = figures.save(figures.reliability(pair[:, 0], pair[:, 1], role), folder, f"reliability_{role}")
            caption = f"{len(pair)} samples, each predicted by a probe that saw no sample of its question."
            out.append(Picture(f"Reliability of the {role}'s probe", caption, svg))
        out += _tradeoff(inputs.predictions, folder)
    histories = {r: h for r in ROLES if (h := ((inputs.metrics or {}).get(r) or {}).get("history"))}
    if histories:
        svg = figures.save(figures.training(histories), folder, "training")
        caption = "Squared error after each epoch, mean over the folds still training, whichever predictor won."
        out.append(Picture("Training of the networks", caption, svg))
    return out


def _tradeoff(predictions: pd.DataFrame, folder: Path) -> list[Picture]:
    """What each rule's score buys as a threshold moves over it; nothing without labels under both models."""
    table = predictions[predictions["author"] == "draft"].dropna(subset=["label_target", "label_draft"])
    if len(table) < 5:
        return []
    p, q, label = (table[c].to_numpy(float) for c in ("pred_target", "pred_draft", "label_target"))
    scores = {"p / q": p / q, "p alone": p}
    if "pred_joint" in table:
        scores["joint predictor"] = table["pred_joint"].to_numpy(float)
    truth = ratio(label, table["label_draft"].to_numpy(float))
    curves = {title: evaluation.tradeoff(score, label) for title, score in scores.items()}
    figure = figures.tradeoff(curves, float(truth.mean()), float((label == 0).mean()))
    caption = (
        f"{len(table)} draft samples, the best-scored accepted first (decide.threshold moves along a line). "
        "Lower is better: fewer accepted steps whose meaning the target produced in none of its samples."
    )
    return [Picture("What a rule accepts", caption, figures.save(figure, folder, "tradeoff"))]


def evenly(label: np.ndarray, most: int, seed: int) -> tuple[np.ndarray, int]:
    """Places of samples drawn from each 0.1 interval of `label` ([n], in [0, 1]) alike, in order, and how many of each
    at most (the paper's Figure 2).

    That is what the middle one of the intervals that are not empty has, and no more than `most` in all; an interval
    with fewer gives what it has.
    """
    interval = np.clip(np.floor(10 * label + 1e-9), 0, 9).astype(int)
    sizes = np.bincount(interval, minlength=10)
    share = max(1, min(int(np.median(sizes[sizes > 0])), most // int((sizes > 0).sum())))
    rng = np.random.default_rng(seed)
    each = [rng.permutation(np.flatnonzero(interval == i))[:share] for i in range(10)]
    return np.sort(np.concatenate(each)), share


def state_map(settings: Settings, inputs: Inputs, folder: Path) -> tuple[Picture | None, str]:
    """The map of the target's hidden states, or None and what is missing."""
    from semspec.probe.features import choose_layers

    if inputs.hidden is None or inputs.samples is None or inputs.labels is None:
        return None, "No map: hidden states or labels are missing (stages sample and cluster)."
    table = inputs.samples[["sample_id"]].reset_index(names="row")
    table = table.merge(inputs.labels, on="sample_id").dropna(subset=["p_target"])
    if len(table) < 3:
        return None, f"No map: only {len(table)} samples have a label under the target."
    label = table["p_target"].to_numpy(float)
    drawn, share = evenly(label, settings.report.max_points, settings.seed)
    table = table.iloc[drawn]
    hidden = read_safetensors(inputs.hidden)["hidden"]
    layer = choose_layers(settings.train.layers_of("target"), hidden.shape[1])[-1]
    points, axis = figures.project(hidden[table["row"].to_numpy(), layer], settings.seed, settings.report.projection)
    figure = figures.state_map(points, table["p_target"].to_numpy(float), table["author"].tolist(), axis)
    how = {"UMAP": "UMAP on at most 50 principal components", "PCA": "the first two principal components"}[axis]
    caption = (
        f"{len(table)} of {len(label)} samples as the target reads them, drawn at random, at most {share} from each "
        f"tenth of semantic probability: mean state of layer {layer}, by {how}. Distances between far groups mean "
        "little."
    )
    return Picture("Map of hidden states", caption, figures.save(figure, folder, "hidden_states")), ""


def paper_section(runs: Sequence[paper.Run], folder: Path) -> tuple[list[paper.Filled], list[Picture], list[str]]:
    """The paper's tables with ours in them, its Figures 3 to 5, and what is missing of these."""
    filled = {layout.name: paper.fill(layout, runs) for layout in published.LAYOUTS}
    figure = figures.paper_plane(paper.plane(filled[published.TABLE_4.name]), paper.METHODS)
    several = " {} may hold several runs: see the notes below {}." if len(runs) > 1 else ""
    caption = (
        "Drawn from the numbers of Table 4, the paper's in its own rows of panels. Each panel has its own scales: "
        "seconds on different machines do not compare." + several.format("A panel of ours", "Table 4")
    )
    svg = figures.save(figure, folder, "paper_figure3")
    shown, missing = [Picture("Figure 3: Pass@1 against latency", caption, svg)], []
    for layout in (published.FIGURE_4, published.FIGURE_5):
        title = layout.title
        lines = {group: rows for group, rows in filled[layout.name].measured.items() if len(rows) > 1}
        if not lines:
            missing.append(f"{title}: no picture; {paper.NOT_RUN} with two of them on one problem set.")
            continue
        picture = figures.save(figures.by_setting(layout.rows, lines), folder, layout.name)
        caption = (
            "Ours alone, from the numbers of the table above; bars are 95% intervals over problems. The paper prints "
            "no numbers for its picture." + several.format("A line", "the table")
        )
        shown.append(Picture(title, caption, picture))
    return list(filled.values()), shown, missing

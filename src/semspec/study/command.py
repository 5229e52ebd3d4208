"""`semspec study NAME`: run one study on a project and write its figures, its table and its picture.

Knows files, progress and how results look; the studies themselves know none of these.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from semspec import files
from semspec.report import figures
from semspec.report.tables import Table as Shown
from semspec.report.tables import number
from semspec.schema import Settings
from semspec.study import labels, pictures, predictors, scaling
from semspec.study.columns import Table

OF = ("target", "draft", "decision")
TITLES = {"target": "p: the target's probe", "draft": "q: the draft's probe", "decision": "the decision"}


def run(name: str, settings: Settings, root: Path) -> Path:
    """Run study `name`; returns the table's path. `UserError` where a stage has not run."""
    from tqdm import tqdm

    from semspec.provenance import collect

    table = Table.load(settings, root)
    out = root / "results/studies"
    with tqdm(desc=f"study {name}", unit="fit", file=sys.stderr) as bar:

        def tick(what: str) -> None:
            bar.set_postfix_str(what)
            bar.update()

        found = STUDIES[name](table, settings, root, tick)
    shown, figure = SHOWN[name](found)
    counts = {"rows": len(table.rows), "questions": int(table.rows["question_id"].nunique())}
    files.write_json(out / f"{name}.json", found | counts | {"provenance": collect(settings)})
    shown.save(out)
    figures.save(figure, out, name)
    return out / f"{name}.md"


def _predictors(table: Table, settings: Settings, root: Path, tick: Callable[[str], None]) -> dict[str, Any]:
    return predictors.study(table, tick)


def _scaling(table: Table, settings: Settings, root: Path, tick: Callable[[str], None]) -> dict[str, Any]:
    return scaling.study(table, tick)


def _labels(table: Table, settings: Settings, root: Path, tick: Callable[[str], None]) -> dict[str, Any]:
    from semspec.semantics.entailment import calibrated, pair_model

    encoder, found = pair_model("cosine", settings, root), calibrated(root)
    made = (pair_model("crossencoder", settings, root), found) if found else None
    return labels.study(table, files.read_parquet(root / "data/contexts.parquet"), encoder, made, tick)


def _ci(score: Mapping[str, Any]) -> str:
    low, high = score["spearman_ci"]
    return f"{number(score['spearman'])} [{low:.2f}, {high:.2f}]"


def _show_predictors(found: Mapping[str, Any]) -> tuple[Shown, Any]:
    rows = []
    for v in found["variants"]:
        cells = [f"{_ci(v[of])}, {number(v[of]['brier'])}" if of in v else "–" for of in OF]
        cost = v["decision"]
        step = f"{cost['step_us']:.0f}" if "step_us" in cost else "–"
        rows.append([v["columns"], v["learner"], *cells, number(cost["agreement"]), f"{cost['fit_seconds']:.1f}", step])
    r = found["ratio"]
    rows.append(["(the best p and q)", "min(1, p/q)", "", "", number(r["spearman"]), number(r["agreement"]), "", ""])
    head = ["Columns", "Learner", *(f"{TITLES[of]}: Spearman, Brier" for of in OF), "agreement", "fit s", "step µs"]
    notes = [
        ("Rows", "The draft's samples, of questions that the predictor has not seen."),
        ("fit s, step µs", "All folds' fits of the decision; one step's prediction, columns not included."),
    ]
    labels_ = [f"{v['columns']}, {v['learner']}" for v in found["variants"]]
    values = {TITLES[of]: [v.get(of) for v in found["variants"]] for of in OF}
    layers = {TITLES[of]: [row[of] for row in found["layers"]] for of in ("target", "draft")}
    return Shown("predictors", "Predictors", head, rows, notes), pictures.ablation(labels_, values, layers)


def _show_scaling(found: Mapping[str, Any]) -> tuple[Shown, Any]:
    rows = [[r["what"], str(r["n"]), str(r["rows"]), *(_ci(r[of]) for of in OF)] for r in found["rows"]]
    c = found["ceiling"]
    halves = [f"{number(c[of])} ({number(c[f'{of}_full'])})" for of in OF]
    rows.append(["two halves of the samples against each other (whole ones)", "", "", *halves])
    head = ["What is thinned out", "Left", "Rows", *(f"{TITLES[of]}: Spearman" for of in OF)]
    notes = [
        ("Spearman", f"Of the draft's samples of unseen questions, against the {found['against']}."),
        ("Two halves", "Rank correlation of two labels from disjoint halves of the samples: what noise leaves."),
    ]
    curves: dict[str, dict[str, list[tuple[int, float]]]] = {}
    for r in found["rows"]:
        for of in OF:
            curves.setdefault(r["what"], {}).setdefault(TITLES[of], []).append((r["n"], r[of]["spearman"]))
    return Shown("scaling", "How much data", head, rows, notes), pictures.scaling(curves)


def _show_labels(found: Mapping[str, Any]) -> tuple[Shown, Any]:
    known = "error" in found["rows"][0]
    rows = []
    for r in found["rows"]:
        cells = [r["labels"]]
        if known:
            cells += [number(r.get("f1")), number(r.get("rand")), *(number(r["error"][of]) for of in OF)]
        rows.append([*cells, *(_ci(r["learned"][of]) for of in OF)])
    truth = ["F1 of pairs", "Rand", *(f"{TITLES[of]}: error of the label" for of in OF)] if known else []
    head = ["Labels", *truth, *(f"{TITLES[of]}: Spearman" for of in OF)]
    notes = [("Spearman", f"Of what a probe learns from these labels, against the {found['against']}.")]
    values = {TITLES[of]: [r["learned"][of] for r in found["rows"]] for of in OF}
    return Shown("labels", "Labels", head, rows, notes), pictures.ablation([r["labels"] for r in found["rows"]], values)


STUDIES: Mapping[str, Callable[..., dict[str, Any]]] = {
    "labels": _labels,
    "predictors": _predictors,
    "scaling": _scaling,
}
SHOWN: Mapping[str, Callable[[Mapping[str, Any]], tuple[Shown, Any]]] = {
    "labels": _show_labels,
    "predictors": _show_predictors,
    "scaling": _show_scaling,
}

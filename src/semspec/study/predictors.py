"""Study `predictors`: which columns and which learner predict p, q and the decision best on the draft's samples.

Everything is out of fold by question. Knows nothing of files.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from semspec.probe import calibration, evaluation
from semspec.probe.crossvalidation import cross_calibrate
from semspec.rules import ratio
from semspec.study.columns import Table, out_of_fold

# the paper's own first, then each thing changed
VARIANTS = [
    ("mean logprob", "ridge"),
    ("five statistics", "ridge"),
    ("statistics", "ridge"),
    ("statistics", "ordinal"),
    ("statistics", "trees"),
    ("last layer", "ridge"),
    ("all layers", "ridge"),
    ("all layers", "mlp"),
    ("all layers, 256", "ridge"),
    ("shared projection", "ridge"),
    ("shared projection", "mlp"),
    ("last layer + statistics", "ordinal"),
    ("all layers + statistics", "ridge"),
    ("all layers + statistics", "binomial"),
    ("all layers + statistics", "ordinal"),
    ("all layers + statistics", "mlp"),
    ("all layers + statistics", "trees"),
    ("all layers + statistics", "forest"),
    ("all layers + statistics", "ordinal + trees"),
    ("all layers, 256 + statistics", "ordinal"),
]
OF = ("target", "draft", "decision")


def judge(table: Table, of: str, raw: np.ndarray) -> dict[str, Any]:
    """Figures of raw out-of-fold predictions on the draft's rows, calibrated across folds where that matters."""
    draft = table.draft
    a = _probability(table, of, raw)[draft]
    truth, groups = table.reference(of)[draft], table.questions[draft]
    found = evaluation.regression(a, truth, groups, table.settings.seed, raw[draft])
    assert found is not None
    found.pop("reliability")
    return found | {"agreement": float((1 - np.abs(a - truth)).mean())}


def study(table: Table, tick: Callable[[str], None] = lambda name: None) -> dict[str, Any]:
    """{"variants": rows, "ratio": the ratio of the best p and q, "layers": the curve over single layers}."""
    rows, raws = [], {}
    for block, learner in VARIANTS:
        row: dict[str, Any] = {"columns": block, "learner": learner}
        for of in OF:
            found = out_of_fold(table, of, block, learner)
            raws[block, learner, of] = found.raw
            row[of] = judge(table, of, found.raw) | {"fit_seconds": found.fit_seconds, "step_us": found.step_us}
            tick(f"{block}, {learner}: {of}")
        rows.append(row)
    # log p - log q, learned as a number of its own
    p, q, least = table.label("target"), table.label("draft"), 1 / (4 * table.settings.sample.n)
    difference = np.log(np.maximum(p, least)) - np.log(np.maximum(q, least))
    found = out_of_fold(table, "decision", "all layers + statistics", "ridge", label=difference)
    row = {"columns": "all layers + statistics", "learner": "ridge on log p - log q"}
    rows.append(row | {"decision": judge(table, "decision", found.raw) | {"fit_seconds": found.fit_seconds}})
    tick("log p - log q")
    best = {of: max(rows[:-1], key=lambda r: r[of]["spearman"]) for of in ("target", "draft")}
    p_, q_ = (_probability(table, of, raws[best[of]["columns"], best[of]["learner"], of]) for of in ("target", "draft"))
    layers = [
        {
            "layer": i,
            **{of: judge(table, of, out_of_fold(table, of, i, "ridge").raw)["spearman"] for of in ("target", "draft")},
        }
        for i in _layers(table)
    ]
    tick("single layers")
    return {"variants": rows, "ratio": _decided(table, ratio(p_, q_)), "layers": layers}


def _layers(table: Table) -> range:
    return range(min(h.shape[1] for h in table.hidden.values()))


def _probability(table: Table, of: str, raw: np.ndarray) -> np.ndarray:
    fitted = np.where(table.draft, table.label(of), np.nan)  # calibrated on what it has to judge
    return cross_calibrate(raw, fitted, table.fold, "sigmoid", calibration.floor_of(table.settings.sample.n))


def _decided(table: Table, a: np.ndarray) -> dict[str, Any]:
    truth, draft = table.reference("decision"), table.draft
    return {
        "spearman": evaluation.spearman(a[draft], truth[draft]),
        "agreement": float((1 - np.abs(a - truth))[draft].mean()),
        "mean_predicted": float(a[draft].mean()),
        "mean_label": float(truth[draft].mean()),
    }

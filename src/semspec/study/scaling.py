"""Study `scaling`: how good predictions are with fewer questions, fewer contexts of each, fewer samples, fewer layers.

The samples at hand are thinned out before anything is fitted, and what is learned from them is held against the full
labels (or the truth) of all questions, out of fold. Knows nothing of files.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from semspec.probe import evaluation
from semspec.rules import ratio
from semspec.study.columns import Table, out_of_fold
from semspec.study.predictors import judge

BLOCK, LEARNER = "all layers + statistics", "ordinal"
OF = ("target", "draft", "decision")
SAMPLES = (2, 4, 8, 16, 32, 64)


def _halves(most: int, least: int) -> list[int]:
    """`most`, half of it ... down to `least`, ascending."""
    out = [most]
    while out[-1] // 2 >= least:
        out.append(out[-1] // 2)
    return out[::-1]


def recount(table: Table, n: int) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Labels {"target", "draft", "decision"} had only the first `n` samples of each model been drawn, and those rows.

    The clusters are those of all samples: what is thinned out is the count.
    """
    rows = table.rows
    used = (rows["index"] < n).to_numpy()
    key = rows["context_id"] + "|" + rows["cluster"].astype(str)
    out = {}
    for role in ("target", "draft"):
        own = used & (rows["author"] == role).to_numpy()
        out[role] = key.map(key[own].value_counts()).fillna(0).to_numpy(float) / n
    return out | {"decision": ratio(out["target"], np.maximum(out["draft"], 1e-9))}, used


def plans(table: Table) -> Iterator[tuple[str, int, np.ndarray, dict[str, np.ndarray], str]]:
    """(what is thinned out, how many are left, rows that are left, labels, columns)."""
    rng = np.random.default_rng(table.settings.seed)
    full = {of: table.label(of) for of in OF}
    everything = np.ones(len(table.rows), dtype=bool)
    questions = rng.permutation(np.unique(table.questions))
    # a fifth is held out in each fold: what a probe learns from is four fifths of these
    for n in _halves(len(questions), 12):
        yield "questions", n, np.isin(table.questions, questions[:n]), full, BLOCK
    n = int(table.rows["index"].max()) + 1
    for m in [m for m in SAMPLES if m < n] + [n]:
        labels, used = recount(table, m)
        yield "samples per context and model", m, used, labels, BLOCK
    contexts = table.rows.groupby("question_id")["context_id"].nunique().max()
    place = table.rows.groupby("question_id")["context_id"].transform(lambda c: c.rank(method="dense"))
    for m in range(1, contexts + 1) if contexts > 1 else []:
        yield "contexts per question", m, (place <= m).to_numpy(), full, BLOCK
    for i, block in enumerate(("statistics", "last layer + statistics", BLOCK)):
        yield "hidden states: none, the last layer, all", i, everything, full, block


def study(table: Table, tick: Callable[[str], None] = lambda name: None) -> dict[str, Any]:
    """{"rows": one for each plan, "ceiling": what labels of this many samples could reach at most}."""
    rows = []
    for what, n, allowed, labels, block in plans(table):
        row: dict[str, Any] = {"what": what, "n": n, "rows": int(allowed.sum())}
        for of in OF:
            raw = out_of_fold(table, of, block, LEARNER, label=labels[of], allowed=allowed).raw
            found = judge(table, of, raw)
            row[of] = {k: found[k] for k in ("spearman", "spearman_ci", "mae", "brier", "agreement", "mean_predicted")}
        rows.append(row)
        tick(f"{what}: {n}")
    return {"rows": rows, "ceiling": ceiling(table), "against": "truth" if table.truth is not None else "labels"}


def ceiling(table: Table, repeats: int = 20) -> dict[str, float]:
    """Rank correlation of two labels counted from disjoint halves of the samples, and, by Spearman and Brown's formula,
    that of two labels of full size: about the square of what a perfect predictor could reach against such labels.
    """
    rng = np.random.default_rng(table.settings.seed)
    rows, out = table.rows, {}
    n = int(rows["index"].max()) + 1
    key = rows["context_id"] + "|" + rows["cluster"].astype(str)
    found: dict[str, list[float]] = {of: [] for of in OF}
    for _ in range(repeats):
        half = rng.permutation(n) < n // 2
        first = half[rows["index"].to_numpy()]
        counts = []
        for part in (first, ~first):
            own = {r: part & (rows["author"] == r).to_numpy() for r in ("target", "draft")}
            c = {r: key.map(key[own[r]].value_counts()).fillna(0).to_numpy(float) for r in own}
            counts.append(c | {"decision": ratio(c["target"], np.maximum(c["draft"], 1e-9))})
        for of in OF:
            found[of].append(evaluation.spearman(counts[0][of][table.draft], counts[1][of][table.draft]))
    for of, values in found.items():
        r = float(np.mean(values))
        out[of] = r
        out[f"{of}_full"] = 2 * r / (1 + r)
    return out

"""Study `labels`: ways to make a label from the same samples, held against the truth where it is known.

Ways to say that two steps mean the same, ways to group them, ways to count. A probe is trained on each, and its
predictions are held against the truth as well (or, where none is known, against the project's own labels). Knows
nothing of files.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pandas as pd

from semspec.rules import ratio
from semspec.semantics.clustering import Same
from semspec.semantics.entailment import Cascade, PairModel
from semspec.semantics.labels import make_labels
from semspec.study.columns import Table, out_of_fold
from semspec.study.predictors import judge
from semspec.study.scaling import BLOCK, OF

LEARNER = "binomial"  # an ordinal one asks whether a label is above 0, which a prior would spoil
PRIOR = (0.5, 1.0, 2.0, 4.0)  # samples that a prior counts as


def transitive(texts: Sequence[str], same: Same) -> list[int]:
    """Cluster ids in which two texts are together where a chain of pairs that mean the same joins them."""
    from scipy.sparse import coo_matrix
    from scipy.sparse.csgraph import connected_components

    unique = list(dict.fromkeys(texts))
    pairs = [(i, j) for i in range(len(unique)) for j in range(i)]
    yes = (
        [p for p, s in zip(pairs, same([(unique[i], unique[j]) for i, j in pairs]), strict=True) if s] if pairs else []
    )
    links = np.array(yes, dtype=int).reshape(-1, 2)
    graph = coo_matrix((np.ones(len(links)), (links[:, 0], links[:, 1])), shape=(len(unique), len(unique)))
    found = connected_components(graph, directed=False)[1]
    place = dict(zip(unique, found.tolist(), strict=True))
    return [place[t] for t in texts]


def shrunk(table: Table, n: int, prior: float) -> dict[str, np.ndarray]:
    """Labels drawn towards the mean as by a Beta prior worth `prior` samples."""
    out = {}
    for role in ("target", "draft"):
        p = table.label(role)
        out[role] = (p * n + prior * p.mean()) / (n + prior)
    return out | {"decision": np.minimum(1, out["target"] / out["draft"])}


def _labels(found: pd.DataFrame) -> dict[str, np.ndarray]:
    p, q = found["p_target"].to_numpy(float), found["p_draft"].to_numpy(float)
    return {"target": p, "draft": q, "decision": ratio(p, q)}


def study(
    table: Table, contexts: pd.DataFrame, model: PairModel | None, tick: Callable[[str], None] = lambda name: None
) -> dict[str, Any]:
    """{"rows": for each way the error of its labels and the figures of a probe trained on them}."""
    chosen = table.settings.cluster
    cascades = {
        "gate and encoder (the default)": Cascade(True, model, chosen.threshold, False, chosen.calculated),
        "one threshold": Cascade(True, model, chosen.threshold),
        "gate alone": Cascade(True, None, 0.0),
        "encoder alone": Cascade(False, model, 0.8),
        "with the context in front": Cascade(True, model, chosen.threshold, True, chosen.calculated),
    }
    samples = table.rows
    default = cascades["gate and encoder (the default)"]
    made: dict[str, tuple[dict[str, np.ndarray], np.ndarray | None]] = {}
    for name, cascade in cascades.items():
        if model is None and name in ("encoder alone", "with the context in front"):
            continue
        found = make_labels(samples, contexts, cascade)
        made[name] = _labels(found), found["cluster"].to_numpy()
        tick(name)
    found = make_labels(samples, contexts, default, grouping=transitive)
    made["transitive clusters"] = _labels(found), found["cluster"].to_numpy()
    n = table.settings.sample.n
    for prior in PRIOR:
        made[f"shrunk by a prior of {prior:g}"] = shrunk(table, n, prior), None
    rows = []
    for name, (labels, clusters) in made.items():
        row: dict[str, Any] = {"labels": name}
        if table.truth is not None:
            from semspec.world.truth import agreement

            true = samples[["sample_id"]].merge(table.truth, on="sample_id", how="left")
            if clusters is not None:
                row |= agreement(clusters.tolist(), true["cluster"].tolist(), samples["context_id"].tolist())
            row["error"] = {of: float(np.abs(labels[of] - table.reference(of))[table.draft].mean()) for of in OF}
        row["learned"] = {}
        for of in OF:
            raw = out_of_fold(table, of, BLOCK, LEARNER, label=labels[of]).raw
            figures = judge(table, of, raw)
            row["learned"][of] = {k: figures[k] for k in ("spearman", "spearman_ci", "mae", "agreement")}
        rows.append(row)
        tick(f"a probe on: {name}")
    return {"rows": rows, "against": "truth" if table.truth is not None else "labels"}

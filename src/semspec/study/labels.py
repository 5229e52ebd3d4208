"""Study `labels`: ways to make a label from the same samples, held against the truth where it is known.

Ways to say that two steps mean the same, ways to group them, ways to count, ways to let a context count for more. A
probe is trained on each, and its predictions are held against the truth as well (or, where none is known, against the
project's own labels). Knows nothing of files.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from semspec.rules import ratio
from semspec.semantics.clustering import Same
from semspec.semantics.entailment import THRESHOLDS, Cascade, PairModel
from semspec.semantics.labels import make_labels
from semspec.study.columns import Table, out_of_fold
from semspec.study.predictors import judge
from semspec.study.scaling import BLOCK, OF

LEARNER = "binomial"  # an ordinal one asks whether a label is above 0, which a prior would spoil
DEFAULT = "gate and encoder (the default)"
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


def importance(table: Table) -> dict[str, dict[str, np.ndarray]]:
    """{scheme: {of: how much each row counts `[n]`, 1 on average}}: contexts that tell more, or more surely, for more.

    The samples of all contexts are as many, so a label's certainty differs only by its own binomial variance
    p (1 - p) / n (p drawn towards a half, as by half a sample each way). `certain`: the inverse of a context's mean
    variance plus that of all contexts, which stands for what a probe gets wrong anyway. `open`: the entropy of a
    context's clusters, since where all samples say the same there is nothing to tell apart. `agreed`: the reverse.
    """
    n = table.settings.sample.n
    context = table.rows["context_id"]
    noise = {}
    for role in ("target", "draft"):
        p = (table.label(role) * n + 0.5) / (n + 1)
        noise[role] = pd.Series(p * (1 - p) / n).groupby(context).transform("mean").to_numpy()
    noise["decision"] = (noise["target"] + noise["draft"]) / 2
    share = table.rows.groupby("context_id")["cluster"].value_counts(normalize=True)
    entropy = -(share * np.log(share)).groupby("context_id").sum() / np.log(2 * n)
    spread = context.map(entropy).to_numpy(float)
    schemes = {
        "certain": {of: 1 / (v + v.mean()) for of, v in noise.items()},
        "open": dict.fromkeys(noise, spread),
        "agreed": dict.fromkeys(noise, 1 - spread),
    }
    # Where no context is open, or none agreed, all count alike.
    return {
        name: {of: w / w.mean() if w.any() else np.ones_like(w) for of, w in by.items()} for name, by in schemes.items()
    }


def _labelled(found: pd.DataFrame) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Labels of a label table, and its clusters."""
    p, q = found["p_target"].to_numpy(float), found["p_draft"].to_numpy(float)
    return {"target": p, "draft": q, "decision": ratio(p, q)}, found["cluster"].to_numpy()


def study(
    table: Table,
    contexts: pd.DataFrame,
    encoder: PairModel | None,
    made: tuple[PairModel, Mapping[str, float]] | None = None,
    tick: Callable[[str], None] = lambda name: None,
) -> dict[str, Any]:
    """{"rows": for each way the error of its labels and the figures of a probe trained on them}.

    made: the cross-encoder and its calibrated thresholds, where there is one.
    """
    threshold, calculated = THRESHOLDS["cosine"]
    cascades = {
        DEFAULT: Cascade(True, encoder, threshold, False, calculated),
        "one threshold": Cascade(True, encoder, threshold),
        "gate alone": Cascade(True, None, 0.0),
    }
    if encoder is not None:
        cascades["encoder alone"] = Cascade(False, encoder, 0.8)
        cascades["with the context in front"] = Cascade(True, encoder, threshold, True, calculated)
    if made is not None:
        cross, found = made
        cascades["gate and cross-encoder"] = Cascade(True, cross, found["threshold"], False, found["calculated"])
        cascades["cross-encoder alone"] = Cascade(False, cross, found["alone"])
    labels: dict[str, tuple[dict[str, np.ndarray], np.ndarray | None]] = {}
    for name, cascade in cascades.items():
        labels[name] = _labelled(make_labels(table.rows, contexts, cascade))
        tick(name)
    labels["transitive clusters"] = _labelled(make_labels(table.rows, contexts, cascades[DEFAULT], grouping=transitive))
    for prior in PRIOR:
        labels[f"shrunk by a prior of {prior:g}"] = shrunk(table, table.settings.sample.n, prior), None
    weights: dict[str, dict[str, np.ndarray] | None] = dict.fromkeys(labels)
    for scheme, weight in importance(table).items():
        name = f"{scheme} contexts count for more"
        labels[name], weights[name] = labels[DEFAULT], weight
    rows = []
    for name, (label, clusters) in labels.items():
        row: dict[str, Any] = {"labels": name}
        if table.truth is not None:
            row |= _errors(table, label, clusters)
        row["learned"] = {}
        for of in OF:
            weight_ = weights[name]
            raw = out_of_fold(
                table, of, BLOCK, LEARNER, label=label[of], importance=None if weight_ is None else weight_[of]
            ).raw
            figures = judge(table, of, raw)
            row["learned"][of] = {k: figures[k] for k in ("spearman", "spearman_ci", "mae", "agreement")}
        rows.append(row)
        tick(f"a probe on: {name}")
    return {"rows": rows, "against": "truth" if table.truth is not None else "labels"}


def _errors(table: Table, label: dict[str, np.ndarray], clusters: np.ndarray | None) -> dict[str, Any]:
    """Of labels, and of the clusters behind them, against the truth."""
    from semspec.world.truth import agreement

    assert table.truth is not None
    samples, row = table.rows, {}
    if clusters is not None:
        true = samples[["sample_id"]].merge(table.truth, on="sample_id", how="left")
        row = agreement(clusters.tolist(), true["cluster"].tolist(), samples["context_id"].tolist())
    return row | {"error": {of: float(np.abs(label[of] - table.reference(of))[table.draft].mean()) for of in OF}}

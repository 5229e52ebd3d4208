"""Semantic probabilities: how often each model says what a sample says, in that sample's context.

Cross-labels cluster the draft's and the target's samples of a context together, so a sample has a probability
under both models (0 when the other never says it); own labels are the paper's, each model's samples apart.
Samples enter the clustering in a fixed order, the target's by index and then the draft's by index, so that
representatives are the target's wherever it said the thing at all. This module knows nothing of files, models
or hidden states.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Literal

import numpy as np
import pandas as pd

from semspec.errors import UserError
from semspec.semantics.clustering import Same, cluster
from semspec.semantics.entailment import Entailment

MODELS = ("target", "draft")  # also the order of entry
BLOCK = 32  # contexts whose samples the model may read in advance, in full batches
SAMPLES = "samples_sha256"  # kept with a table of labels (`attrs`): what it was made from, as ids depend on no text
COLUMNS = ["sample_id", "context_id", "question_id", "author", "cluster", "p_draft", "p_target"]


def check_samples(labels: pd.DataFrame, digest: str, stage: str) -> None:
    """`UserError` for labels of other samples than those with the SHA-256 `digest`; older tables don't say."""
    if labels.attrs.get(SAMPLES, digest) != digest:
        raise UserError(f"the labels are of other samples than those in data/samples; run `semspec stage {stage}`")


def context_text(question: str, steps: Any) -> str:
    """The question and the steps so far as one text."""
    return "\n\n".join(s for s in (str(t).strip() for t in [question, *list(steps)]) if s)


def make_labels(
    samples: pd.DataFrame,
    contexts: pd.DataFrame,
    entailment: Entailment,
    labels: Literal["cross", "own"] = "cross",
    progress: Callable[[int, int], None] | None = None,
    grouping: Callable[[Sequence[str], Same], list[int]] = cluster,
) -> pd.DataFrame:
    """Labels of `samples`, one row each, in the same order.

    `samples` has sample_id, context_id, question_id, author ("draft" or "target"), index, text; `contexts`
    has context_id, question, steps. `cluster` counts from 0 within a context (with own labels the draft's
    follow the target's). p_m = (samples of model m in the cluster) / (samples of model m in the context); NaN
    where model m was not clustered with the sample. `progress(done, total)` counts contexts.
    grouping: texts and the decision for pairs -> cluster ids.
    """
    unknown = set(samples["context_id"]) - set(contexts["context_id"])
    if unknown:
        raise UserError(f"samples of unknown context '{min(unknown)}'; run stages contexts and sample again")
    texts = {c: context_text(q, s) for c, q, s in contexts[["context_id", "question", "steps"]].itertuples(index=False)}
    rows = samples.reset_index(drop=True)
    ids = np.full(len(rows), -1)
    p = {m: np.full(len(rows), np.nan) for m in MODELS}
    groups = rows.groupby("context_id", sort=True)
    names = sorted(groups.groups)
    prepare = getattr(entailment, "prepare", None)
    for done, (name, group) in enumerate(groups, 1):
        ordered = [group[group["author"] == m].sort_values("index", kind="stable") for m in MODELS]
        context = texts[str(name)]
        if prepare is not None and done % BLOCK == 1:
            block = rows[rows["context_id"].isin(names[done - 1 : done - 1 + BLOCK])]
            prepare([(texts[c], t) for c, t in zip(block["context_id"], block["text"], strict=True)])
        first = 0
        for part in [pd.concat(ordered)] if labels == "cross" else ordered:
            if part.empty:
                continue
            found = np.array(grouping(list(part["text"]), partial(entailment.same, context)), dtype=np.int64)
            at, authors = part.index.to_numpy(), part["author"].to_numpy()
            ids[at] = found + first
            first += int(found.max()) + 1
            for model in MODELS:
                own = authors == model
                if own.any():
                    p[model][at] = (np.bincount(found[own], minlength=int(found.max()) + 1) / own.sum())[found]
        if progress is not None:
            progress(done, groups.ngroups)
    out = rows[["sample_id", "context_id", "question_id", "author"]].copy()
    out["cluster"], out["p_draft"], out["p_target"] = ids.astype(np.int64), p["draft"], p["target"]
    return out[COLUMNS]


def _mean(values: pd.Series) -> float | None:
    values = values.dropna()
    return float(values.mean()) if len(values) else None


def summary(labels: pd.DataFrame) -> dict[str, Any]:
    """Figures of a label table; None where nothing was measured (own labels have no cross figures).

    `singletons` is the share of samples alone in their cluster; `p_MODEL_on_AUTHOR` the mean semantic
    probability under MODEL of AUTHOR's samples; `true_acceptance` the mean of min(1, p_target / p_draft) over
    the draft's samples, what the acceptance rule would do with true probabilities.
    """
    size = labels.groupby(["context_id", "cluster"])["sample_id"].transform("size")
    drafted = labels[labels["author"] == "draft"]
    clusters = labels.groupby("context_id")["cluster"].nunique()
    return {
        "contexts": int(labels["context_id"].nunique()),
        "samples": len(labels),
        "clusters_per_context": _mean(clusters),
        "singletons": _mean(size == 1),
        **{f"p_{m}_on_{a}": _mean(labels.loc[labels["author"] == a, f"p_{m}"]) for a in MODELS for m in MODELS},
        "true_acceptance": _mean((drafted["p_target"] / drafted["p_draft"]).clip(upper=1)),
    }

"""Judging labels against the truth: true clusters, true semantic probabilities, and how well found clusters agree.

For samples of problems of this world. True clusters come from the computed meaning of each sample, true probabilities
from many further continuations by the same model under the same sampling. Tables have the columns that the
stages `contexts` and `sample` write. It knows nothing of files, of probes, or of how the labels were found.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from semspec.engine.base import Engine, Sampling
from semspec.problems.language import meaning
from semspec.semantics.labels import COLUMNS, MODELS
from semspec.semantics.sampling import prompt_of, seed_of
from semspec.text import Splitter

if TYPE_CHECKING:
    from semspec.schema import Settings

ROWS = 1024  # continuations of one batch; a little faster than 160 or 512 with models this small

Shares = dict[Hashable, float]  # meaning -> probability; sums to 1
Context = tuple[str, list[str]]  # a question, and the steps of an answer to it so far


def meanings(samples: pd.DataFrame, contexts: pd.DataFrame) -> list[Hashable]:
    """The meaning of each sample in its context, in the order of `samples` (context_id, text).

    contexts: context_id, question, steps.
    """
    known = {c: (q, list(s)) for c, q, s in contexts[["context_id", "question", "steps"]].itertuples(index=False)}
    return [meaning(*known[c], text) for c, text in samples[["context_id", "text"]].itertuples(index=False)]


def true_clusters(samples: pd.DataFrame, contexts: pd.DataFrame) -> np.ndarray:
    """Cluster id of each sample, int64 `[len(samples)]`, counted from 0 within a context by first appearance.

    Both models' samples are clustered together, as cross-labels are. Tables as in `meanings`.
    """
    seen: dict[str, dict[Hashable, int]] = {}
    ids = []
    for context, said in zip(samples["context_id"], meanings(samples, contexts), strict=True):
        own = seen.setdefault(context, {})
        ids.append(own.setdefault(said, len(own)))
    return np.array(ids, dtype=np.int64)


def shares(engine: Engine, contexts: Sequence[Context], n: int, settings: Settings) -> list[Shares]:
    """{meaning: share} of `n` next steps by one model, in each context (question, steps of an answer to it).

    Temperature, top_p, step ends, step limit, system prompt and seed are those of `settings`, as in the stage `sample`;
    the random numbers are others. A share p has a standard error of sqrt(p (1 - p) / n). The contexts are worked on at
    once, up to `ROWS` continuations of each; a caller that has many hands them over in `batches`.
    """
    sampling, ends = Sampling(settings.sample.temperature, settings.sample.top_p), Splitter(settings.text.split).ends
    prompts = [prompt_of(engine, question, settings.text.system, steps) for question, steps in contexts]
    counts: list[Counter[Hashable]] = [Counter() for _ in contexts]
    for start in range(0, n, ROWS):
        seeds = [seed_of(settings.seed, "truth", question, steps, start) for question, steps in contexts]
        rows = min(ROWS, n - start)
        written = engine.sample_many(prompts, rows, ends, sampling, settings.text.max_step_tokens, seeds)
        for count, (question, steps), own in zip(counts, contexts, written, strict=True):
            count.update(meaning(question, steps, step.text) for step in own)
    return [{said: c / n for said, c in count.most_common()} for count in counts]


def batches(contexts: Sequence[Context], n: int) -> list[Sequence[Context]]:
    """The contexts in parts of which `n` continuations each are about `ROWS` together."""
    at_once = max(1, ROWS // n)
    return [contexts[i : i + at_once] for i in range(0, len(contexts), at_once)]


def true_labels(
    samples: pd.DataFrame, contexts: pd.DataFrame, probabilities: Mapping[str, Mapping[str, Shares]]
) -> pd.DataFrame:
    """A label table (the columns and row order of `make_labels`) with true clusters and true probabilities.

    probabilities: {"target" and "draft": {context_id: the model's `shares` there}}. p is 0 where none of the `n`
    continuations meant what the sample means, which may happen to a rare sample even under its own author.
    """
    out = samples.reset_index(drop=True)[["sample_id", "context_id", "question_id", "author"]].copy()
    said = list(zip(out["context_id"], meanings(samples, contexts), strict=True))
    out["cluster"] = true_clusters(samples, contexts)
    for model in MODELS:
        out[f"p_{model}"] = np.array([probabilities[model][c].get(m, 0.0) for c, m in said], dtype=np.float64)
    return out[COLUMNS]


def agreement(found: Sequence[Any], true: Sequence[Any], groups: Sequence[Any]) -> dict[str, float]:
    """How well found clusters agree with the true ones, both given by the id of each sample.

    Only samples of the same group (context) are compared. `precision`, `recall` and `f1` are of the pairs that are put
    together, summed over the groups (1 where there is no such pair); `rand` is the adjusted Rand index, averaged over
    the groups (1 = the same clusters, 0 = as by chance).
    """
    from sklearn.metrics import adjusted_rand_score
    from sklearn.metrics.cluster import pair_confusion_matrix

    table = pd.DataFrame({"found": list(found), "true": list(true), "group": list(groups)})
    pairs, rand = np.zeros((2, 2)), []
    for _, part in table.groupby("group", sort=False):
        pairs += pair_confusion_matrix(part["true"], part["found"])
        rand.append(adjusted_rand_score(part["true"], part["found"]))
    both, found_only, true_only = pairs[1, 1], pairs[0, 1], pairs[1, 0]

    def ratio(part: float, whole: float) -> float:
        return float(part / whole) if whole else 1.0

    return {
        "precision": ratio(both, both + found_only),
        "recall": ratio(both, both + true_only),
        "f1": ratio(2 * both, 2 * both + found_only + true_only),
        "rand": float(np.mean(rand)),
    }

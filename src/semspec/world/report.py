"""Stage `truth`: how far labels, probes and decisions are from the truth, in the world where it can be computed.

Writes data/truth.json and the true labels, which are empty for problems of any other kind. Files in, files out.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Executor
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from semspec.engine import cores
from semspec.errors import UserError
from semspec.files import read_jsonl, read_parquet, sha256, write_json, write_parquet
from semspec.probe import evaluation
from semspec.problems import Problem, load
from semspec.rules import ratio
from semspec.schema import Settings
from semspec.semantics.labels import COLUMNS, SAMPLES
from semspec.semantics.sampling import ROLES
from semspec.workers import workers
from semspec.world.draws import draw, oracle_answers, weights
from semspec.world.oracle import gains, met
from semspec.world.truth import Shares, agreement, true_labels

CONTINUATIONS = 100  # of each context and model; a share of .5 then has a standard error of .05
ORACLE = 40  # the same, in the contexts that the oracle meets
LABEL_SIZES = (5, 10, 20, 50)  # samples per context for which the label's own noise is stated


def truth_stage(settings: Settings, root: Path) -> None:
    """Compare the project's labels, predictions and decisions with the truth."""
    if settings.contexts.dataset != "synthetic":
        write_parquet(root / "data/true_labels.parquet", pd.DataFrame(columns=COLUMNS))
        write_json(root / "data/truth.json", {})
        return
    contexts = read_parquet(root / "data/contexts.parquet")
    samples = read_parquet(root / "data/samples/samples.parquet")
    found = read_parquet(root / "data/labels.parquet")
    answered = settings.bench.dataset == "synthetic" and settings.bench.gamma == 1
    rows = read_jsonl(root / "results/bench/graded.jsonl") if answered else []
    problems = load("synthetic", "test", settings.bench.limit, settings.seed) if answered else []
    if {str(problem.id) for problem in problems} != {row["id"] for row in rows}:
        raise UserError("results/bench has answers to other problems; run `semspec stage bench` first")
    with workers(min(settings.scale.workers, cores())) as pool:
        asked = [
            (question, list(steps)) for question, steps in zip(contexts["question"], contexts["steps"], strict=True)
        ]
        drawn = draw(pool, settings, asked, CONTINUATIONS, "truth")
        shares = {role: dict(zip(contexts["context_id"], drawn[role], strict=True)) for role in ROLES}
        true = true_labels(samples, contexts, shares)
        true.attrs[SAMPLES] = sha256(root / "data/samples/samples.parquet")
        write_parquet(root / "data/true_labels.parquet", true)
        predictions = read_parquet(root / "data/probes/predictions.parquet")
        out = compare(true, found, predictions, shares, settings.seed)
        if answered:
            out["end"] = end(pool, settings, problems, rows)
    write_json(root / "data/truth.json", out)


def end(pool: Executor, settings: Settings, problems: Sequence[Problem], rows: list[dict[str, Any]]) -> dict[str, Any]:
    """The oracle's answers to the problems of a bench (`rows` of its graded.jsonl) beside those of the methods."""
    contexts = met(rows)
    drawn = draw(pool, settings, contexts, ORACLE, "true p and q")
    known = {(q, *steps): {role: drawn[role][i] for role in ROLES} for i, (q, steps) in enumerate(contexts)}
    rows = rows + oracle_answers(pool, settings, problems, ORACLE, known)
    sizes = {role: pool.submit(weights, settings, role).result() for role in ROLES}
    share = sizes["draft"] / sizes["target"]
    return {"draft_pass": share, "continuations": ORACLE, "methods": gains(rows, share)}


def compare(
    true: pd.DataFrame,
    found: pd.DataFrame,
    predictions: pd.DataFrame,
    shares: dict[str, dict[str, Shares]],
    seed: int,
) -> dict[str, Any]:
    """`true`, `found`: label tables of the same samples; `predictions`: the stage train's, out of fold."""
    table = true.merge(found[["sample_id", "cluster", "p_draft", "p_target"]], on="sample_id", suffixes=("", "_found"))
    table = table.merge(predictions[["sample_id", *(c for c in predictions if c.startswith("pred_"))]], on="sample_id")
    draft = table[table["author"] == "draft"]
    questions = draft["question_id"].to_numpy()
    least = 1 / CONTINUATIONS
    truth = ratio(draft["p_target"].to_numpy(), draft["p_draft"].clip(lower=least).to_numpy())
    rules = {
        "labels": ratio(draft["p_target_found"].to_numpy(), draft["p_draft_found"].to_numpy()),
        "ratio": ratio(draft["pred_target"].to_numpy(), draft["pred_draft"].to_numpy()),
    }
    if "pred_joint" in draft:
        rules["joint"] = draft["pred_joint"].to_numpy(float)
    return {
        "continuations": CONTINUATIONS,
        "clusters": agreement(table["cluster_found"].tolist(), table["cluster"].tolist(), table["context_id"].tolist()),
        "label_noise": {str(n): label_noise(shares["target"], n, seed) for n in LABEL_SIZES},
        "label_error": {role: float((table[f"p_{role}_found"] - table[f"p_{role}"]).abs().mean()) for role in ROLES},
        "probes": {
            role: evaluation.regression(
                draft[f"pred_{role}"].to_numpy(float), draft[f"p_{role}"].to_numpy(float), questions, seed
            )
            for role in ROLES
        },
        "mean_true_acceptance": float(truth.mean()),
        "decisions": {
            name: {
                "mean": float(a.mean()),
                "agreement": float((1 - np.abs(a - truth)).mean()),
                "same_verdict": float(((a >= 0.5) == (truth >= 0.5)).mean()),
                "spearman": evaluation.spearman(a, truth),
            }
            for name, a in rules.items()
            if not np.isnan(a).any()  # `cluster.labels: own` gives the draft's samples no p
        },
    }


def label_noise(shares: dict[str, Shares], n: int, seed: int) -> float:
    """Mean absolute difference between a count label of `n` samples and the truth, were every pair decided right.

    Over samples drawn as the stage `sample` draws them: a meaning counts as often as it is said.
    """
    rng = np.random.default_rng(seed)
    errors = []
    for share in shares.values():
        p = np.array(list(share.values()))
        counts = rng.multinomial(n, p / p.sum())
        errors.append((counts / n * np.abs(counts / n - p)).sum())
    return float(np.mean(errors))

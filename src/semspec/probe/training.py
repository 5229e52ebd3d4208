"""Stage `train`: samples and labels in, the probes, their metrics and out-of-fold predictions out.

The probe of a role reads that role's view of a sample and predicts the sample's semantic probability under
that role; the joint one reads both views and predicts the decision. Files in, files out; knows nothing of
language models or of decoding.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from semspec import files
from semspec.engine.statistics import table
from semspec.errors import UserError
from semspec.probe import evaluation, features
from semspec.probe.conditions import conditions
from semspec.probe.crossvalidation import Data, make_folds, train_role
from semspec.probe.joint import Joint, train_joint
from semspec.probe.novelty import fit_novelty
from semspec.rules import ratio
from semspec.schema import Settings, Train
from semspec.semantics.labels import check_samples

if TYPE_CHECKING:
    from tqdm import tqdm

ROLES = ("draft", "target")
LAST_HIDDEN = "last_hidden"


def read_role(root: Path, role: str, samples: pd.DataFrame, label: np.ndarray, fold: np.ndarray, train: Train) -> Data:
    """One role's reading of every sample, checked against samples.parquet."""
    path = root / "data" / "samples" / f"{role}.safetensors"
    tensors = files.read_safetensors(path)
    hidden, logprob = tensors["hidden"], table(tensors)
    if len(hidden) != len(samples) or len(logprob) != len(samples):
        rows = f"{len(hidden)} rows, samples.parquet {len(samples)}"
        raise UserError(f"{path} has {rows}; run `semspec stage sample` again")
    reading = (hidden.shape[1], hidden.shape[2])
    layers = features.probed_layers(train, role, reading[0])
    chosen = None
    if layers:
        chosen = hidden if len(layers) == reading[0] else hidden[:, layers]
    if not np.isfinite(logprob).all() or (chosen is not None and not np.isfinite(chosen).all()):
        raise UserError(f"{path} holds values that are not finite; run `semspec stage sample` again")
    draft = samples["author"].to_numpy() == "draft"
    return Data(role, chosen, logprob, label, samples["question_id"].to_numpy(), draft, fold, layers, reading)


def _label_summary(table: pd.DataFrame) -> dict[str, Any]:
    out: dict[str, Any] = {
        "rows": len(table),
        "questions": int(table["question_id"].nunique()),
        "contexts": int(table["context_id"].nunique()),
    }
    for author in ROLES:
        part = table[table["author"] == author]
        out[author] = {"rows": len(part)}
        for role in ROLES:
            known = part[f"label_{role}"].dropna()
            out[author][f"mean_label_{role}"] = float(known.mean()) if len(known) else None
            out[author][f"zero_share_{role}"] = float((known == 0).mean()) if len(known) else None
    return out


@dataclass
class Material:
    """What probes are trained from. table: a row for each sample, with label_draft and label_target (NaN: unknown);
    views: {role: `Data`}; truth `[n]`: the acceptance that the labels give, NaN where they give none.
    """

    table: pd.DataFrame
    views: dict[str, Data]
    fold: np.ndarray
    truth: np.ndarray


def read_material(settings: Settings, root: Path) -> Material:
    """The project's samples and labels, as `settings.train` wants to see them."""
    train = settings.train
    samples = files.read_parquet(root / "data" / "samples" / "samples.parquet")
    labels_path = root / "data" / "labels.parquet"
    labels = files.read_parquet(labels_path)
    check_samples(labels, files.sha256(root / "data" / "samples" / "samples.parquet"), "cluster")
    if not set(labels["sample_id"]) <= set(samples["sample_id"]):
        raise UserError(f"{labels_path} is not of these samples; run `semspec stage cluster` again")
    table = samples[["sample_id", "author", "context_id", "question_id"]].merge(
        labels[["sample_id", "p_draft", "p_target"]], on="sample_id", how="left", validate="one_to_one"
    )
    table = table.rename(columns={"p_draft": "label_draft", "p_target": "label_target"})
    fold = make_folds(table["question_id"].to_numpy(), train.folds, settings.seed)
    labels_of = {role: table[f"label_{role}"].to_numpy(dtype=float) for role in ROLES}
    views = {role: read_role(root, role, samples, labels_of[role], fold, train) for role in ROLES}
    draft = (table["author"] == "draft").to_numpy()
    return Material(table, views, fold, np.where(draft, ratio(labels_of["target"], labels_of["draft"]), np.nan))


def train_stage(settings: Settings, root: Path) -> None:
    """Train both probes and the joint one into `data/probes/`, beside metrics.json and predictions.parquet.

    A second set that sees each model's last layer only (the paper's ablation) goes to `data/probes/last_hidden/`.
    """
    from tqdm import tqdm

    root, train = Path(root), settings.train
    out = root / "data" / "probes"
    fits = (2 if train.predictor == "auto" else 1) * train.folds + 1
    with tqdm(total=4 * fits + 2, desc="train", unit="fit", disable=None) as bar:
        metrics, predictions = _train(settings, root, out, bar)
        last = settings.model_copy(update={"train": train.model_copy(update={"layers": "last"})})
        metrics[LAST_HIDDEN], _ = _train(last, root, out / LAST_HIDDEN, bar)
    metrics["labels"] = _label_summary(predictions)
    files.write_parquet(out / "predictions.parquet", predictions)
    files.write_json(out / "metrics.json", metrics)


def _constant(truth: np.ndarray, fold: np.ndarray) -> np.ndarray:
    """The one number that agrees best with the true acceptance of the other folds, for each row: their median."""
    out = np.empty(len(truth))
    for k in np.unique(fold):
        out[fold == k] = np.nanmedian(truth[fold != k])
    return out


def _train(settings: Settings, root: Path, out: Path, bar: tqdm) -> tuple[dict[str, Any], pd.DataFrame]:
    """One set of probes into `out`: its metrics, and the labels with the out-of-fold predictions beside them."""
    material = read_material(settings, root)
    table, views, fold, truth = material.table, material.views, material.fold, material.truth
    questions, draft = table["question_id"].to_numpy(), (table["author"] == "draft").to_numpy()
    digest = files.sha256(root / "data" / "labels.parquet")
    metrics: dict[str, Any] = {}
    predicted: dict[str, dict[str, np.ndarray]] = {}
    for role in ROLES:
        bar.set_postfix_str(role)
        trained = train_role(views[role], settings, bar.update)
        hidden = views[role].hidden
        if hidden is not None:
            trained.probe.arrays |= fit_novelty(hidden, fold, views[role].layers, settings.seed).arrays()
        trained.probe.config |= {"labels_sha256": digest, "trained_on": conditions(settings, root, role)}
        trained.probe.save(out / role)
        metrics[role] = trained.metrics
        predicted[role] = trained.predictions
        table[f"pred_{role}"] = trained.predictions["probe"]
    if np.isnan(truth).all():
        Joint.save_untrained(out / "joint", "`cluster.labels: own` gives no true decision to learn from")
    else:
        joint, table["pred_joint"] = train_joint(views, truth, settings)
        joint.save(out / "joint")
    bar.update()

    def judged(name: str) -> np.ndarray:
        return ratio(predicted["target"][name][draft], predicted["draft"][name][draft])

    baselines = {name: judged(name) for name in ("mean", "logprob")}
    if not np.isnan(truth).all():
        baselines["constant"] = _constant(truth, fold)[draft]
    rules = {"ratio": judged("probe"), "p": predicted["target"]["probe"][draft]}
    if "pred_joint" in table:
        rules["joint"] = table["pred_joint"].to_numpy()[draft]
    metrics["decision"] = evaluation.decision(
        rules,
        baselines,
        table["label_target"].to_numpy(dtype=float)[draft],
        table["label_draft"].to_numpy(dtype=float)[draft],
        questions[draft],
        settings.seed,
    )
    return metrics, table

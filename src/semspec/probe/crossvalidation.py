"""Cross-validation and final fit of one probe: folds, candidates, choice of a predictor, calibration.

Everything reported is out-of-fold: no question is on both sides, and a fold's calibration is fitted on the
other folds' out-of-fold predictions. Works on arrays; knows nothing of files.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, cast

import numpy as np

from semspec.errors import UserError
from semspec.probe import calibration, evaluation, features, linear, network
from semspec.probe.probe import Probe, linear_arrays, mlp_arrays
from semspec.schema import Settings, Train

Predictor = Literal["linear", "mlp"]
VALIDATION = 0.2  # share of a training part's questions that stops the network early
TIE = 0.01  # Spearman closer than this is a tie, decided by MAE


def make_folds(questions: np.ndarray, folds: int, seed: int) -> np.ndarray:
    """Fold number `[n]` of every row, one per question. Fewer folds when there are fewer questions."""
    from sklearn.model_selection import GroupKFold

    found = len(np.unique(questions))
    if found < 2:
        raise UserError("probes need samples of at least 2 questions; raise contexts.questions and run again")
    out = np.empty(len(questions), dtype=int)
    splitter = GroupKFold(min(folds, found), shuffle=True, random_state=seed)
    for k, (_, held_out) in enumerate(splitter.split(out, groups=questions)):
        out[held_out] = k
    return out


@dataclass
class Data:
    """One role's view of all samples, rows aligned with samples.parquet. `label` is NaN where unknown."""

    role: str
    hidden: np.ndarray | None  # [n, chosen layers, hidden]
    logprob: np.ndarray  # [n, statistics]
    label: np.ndarray
    questions: np.ndarray
    draft: np.ndarray  # bool: written by the draft model
    fold: np.ndarray
    layers: list[int]
    reading: tuple[int, int]


@dataclass
class Trained:
    """A probe, its metrics, and every row's out-of-fold predictions ("probe", "mean", "logprob")."""

    probe: Probe
    metrics: dict[str, Any]
    predictions: dict[str, np.ndarray]


def fit_features(data: Data, rows: np.ndarray, train: Train, seed: int) -> features.Features:
    """The map from one role's reading to columns, fitted on `rows` alone."""
    logprob = data.logprob if train.features != "hidden" else None
    return features.fit(data.hidden, logprob, rows, data.layers, train.pca, seed)


def _weight(fitted: features.Features) -> np.ndarray:
    return linear.block_weight(fitted.n_hidden, fitted.n_logprob)


def fit_mlp(
    x: np.ndarray,
    label: np.ndarray,
    questions: np.ndarray,
    rows: np.ndarray,
    train: Train,
    seed: int,
    epochs: int | None = None,
) -> network.Fit:
    """The network, fitted on `rows`; with `epochs` None a part of their questions stops the training early."""
    inner, held = rows, None
    if epochs is None:
        order = np.random.default_rng(seed).permutation(np.unique(questions[rows]))
        chosen = order[: max(1, round(VALIDATION * len(order)))] if len(order) > 1 else order
        stop = np.isin(questions[rows], chosen)
        inner = rows[~stop] if len(order) > 1 else rows
        held = (x[rows[stop]], label[rows[stop]])
    return network.fit_mlp(
        x[inner],
        label[inner],
        held,
        hidden_sizes=train.hidden_sizes,
        dropout=train.dropout,
        lr=train.lr,
        weight_decay=train.weight_decay,
        epochs=epochs or train.epochs,
        patience=train.patience,
        batch_size=train.batch_size,
        seed=seed,
    )


def cross_calibrate(
    raw: np.ndarray, label: np.ndarray, fold: np.ndarray, kind: calibration.Kind, floor: float
) -> np.ndarray:
    """Each fold's predictions `[n]`, calibrated on those of the other folds."""
    out = np.empty(len(raw))
    known = ~np.isnan(label)
    for k in np.unique(fold):
        others, held = known & (fold != k), fold == k
        out[held] = calibration.fit(kind, raw[others], label[others], floor)(raw[held])
    return out


def _mean_history(fits: list[network.Fit]) -> list[dict[str, float]]:
    """Mean losses per epoch over the folds that were still training."""
    out = []
    for i in range(max((len(f.history) for f in fits), default=0)):
        rows = [f.history[i] for f in fits if i < len(f.history)]
        mean = {k: float(np.mean([r[k] for r in rows])) for k in ("train_loss", "val_loss")}
        out.append({"epoch": i + 1, "folds": len(rows)} | mean)
    return out


def choose(candidates: Mapping[str, dict[str, Any]]) -> tuple[Predictor, str]:
    """The better predictor on the rows that count, and the sentence the report prints."""
    scores = {name: evaluation.judged(views) for name, views in candidates.items()}
    if len(scores) == 1:
        name = next(iter(scores))
        return cast(Predictor, name), f"{name}: set by train.predictor"
    linear, mlp = scores["linear"], scores["mlp"]
    tie = abs(linear["spearman"] - mlp["spearman"]) < TIE
    better = mlp["mae"] < linear["mae"] if tie else mlp["spearman"] > linear["spearman"]
    name = "mlp" if better else "linear"
    by = "MAE (the rank correlations tie)" if tie else "rank correlation"
    figures = f"Spearman {linear['spearman']:.3f} linear, {mlp['spearman']:.3f} mlp; "
    figures += f"MAE {linear['mae']:.3f} linear, {mlp['mae']:.3f} mlp"
    return cast(Predictor, name), f"{name}: better {by} out of fold ({figures})"


def train_role(
    data: Data, settings: Settings, tick: Callable[[], None] = lambda: None, measured: bool = True
) -> Trained:
    """Cross-validate the candidates, choose one, fit it on every labelled row; `tick` after each fit.

    Not `measured`, it is the same probe without metrics, for a predictor that is named.
    """
    train, seed = settings.train, settings.seed
    names: list[Predictor] = ["linear", "mlp"] if train.predictor == "auto" else [train.predictor]
    floor = calibration.floor_of(settings.sample.n)
    known = ~np.isnan(data.label)
    if len(np.unique(data.fold[known])) < 2:
        raise UserError(
            f"the {data.role} model's labels cover fewer than 2 folds of questions; raise contexts.questions"
        )
    n = len(data.label)
    raw: dict[str, np.ndarray] = {name: np.zeros(n) for name in names}
    base = {"mean": np.zeros(n), "logprob": np.zeros(n)}
    fits = []
    for k in np.unique(data.fold):
        held, rows = data.fold == k, np.flatnonzero(known & (data.fold != k))
        label = data.label[rows]
        base["mean"][held] = label.mean()
        by_logprob = calibration.fit("isotonic", data.logprob[rows, 0], label, floor)
        base["logprob"][held] = by_logprob(data.logprob[held, 0])
        fitted = fit_features(data, rows, train, seed)
        x = fitted.transform(data.hidden, data.logprob)
        if "linear" in names:
            coef, intercept = linear.fit(x[rows], label, train.ridge, _weight(fitted), train.loss)
            raw["linear"][held] = linear.link(x[held] @ coef.T + intercept, train.loss)
            tick()
        if "mlp" in names:
            fits.append(fit_mlp(x, data.label, data.questions, rows, train, seed + int(k)))
            raw["mlp"][held] = network.forward(fits[-1].weights, x[held])
            tick()

    calibrated = {str(n): cross_calibrate(raw[n], data.label, data.fold, train.calibration, floor) for n in names}

    def scored(pred: np.ndarray, score: np.ndarray, constant: bool = False) -> dict[str, Any]:
        return evaluation.views(pred, data.label, data.questions, data.draft, seed, constant, score)

    if measured or len(names) > 1:
        candidates = {str(name): scored(calibrated[name], raw[name]) for name in names}
        predictor, why = choose(candidates)
    else:
        predictor = names[0]

    rows = np.flatnonzero(known)
    fitted = fit_features(data, rows, train, seed)
    epochs = max(1, int(np.median([f.best_epoch for f in fits]))) if fits else 0
    if predictor == "linear":
        x = fitted.transform(data.hidden, data.logprob)[rows]
        arrays = linear_arrays(fitted, *linear.fit(x, data.label[rows], train.ridge, _weight(fitted), train.loss))
    else:
        x = fitted.transform(data.hidden, data.logprob)
        arrays = mlp_arrays(fitted, fit_mlp(x, data.label, data.questions, rows, train, seed, epochs).weights)
    tick()
    final = calibration.fit(train.calibration, raw[predictor][rows], data.label[rows], floor)
    counts = {
        "rows": len(rows),
        "questions": len(np.unique(data.questions[rows])),
        "draft_rows": int(data.draft[rows].sum()),
        "folds": len(np.unique(data.fold)),
    }
    shape = {
        "features": train.features,
        "n_layers": len(data.layers),
        "components": 0 if fitted.projection is None else fitted.n_hidden,
        "n": counts,
    }
    probe = Probe(
        data.role,
        predictor,
        data.layers,
        data.reading,
        train.features != "hidden",
        arrays,
        final,
        shape | {"mlp_sizes": list(train.hidden_sizes), "ridge": train.ridge, "seed": seed},
        train.loss,
    )
    predictions = {"probe": calibrated[predictor], **base}
    if not measured:
        return Trained(probe, {}, predictions)
    baselines = {
        "mean": scored(base["mean"], base["mean"], True),
        "logprob": scored(base["logprob"], data.logprob[:, 0]),
    }
    metrics = shape | {
        "predictor": predictor,
        "chosen_because": why,
        "candidates": candidates,
        "baselines": baselines,
        "beats_baselines": evaluation.beats(candidates[predictor], baselines),
        "calibration": train.calibration,
        "floor": floor,
        "history": _mean_history(fits),
        "epochs": epochs,
    }
    return Trained(probe, metrics, predictions)

"""What is searched: from a trial's numbers to plain changes of params.yaml.

Every trial names every parameter of the parts that are searched; one that another choice makes idle (a width without a
network) is left out of the changes, so that equal settings are equal. Coarse steps on purpose: probes of equal
settings are trained once. Knows names and ranges; knows nothing of how a trial is run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from semspec.schema import Settings
from semspec.tuning.fits import Ranking

WIDTHS = (32, 64, 128, 256, 512)


def suggest(trial: Any, settings: Settings, n_layers: Mapping[str, int], ranking: Ranking) -> dict[str, Any]:
    """{"section.name": value} of one trial; `trial` is Optuna's.

    n_layers: of each model. ranking: the score of each layer, asked for when the best are wanted.
    """
    parts = settings.tune.search
    out: dict[str, Any] = {}
    if "split" in parts:
        out["text.split"] = trial.suggest_categorical("split", ["blank_line", "sentence"])
    if "labels" in parts:
        out["cluster.labels"] = trial.suggest_categorical("labels", ["cross", "own"])
    if "probe" in parts:
        out |= _probe(trial)
    if "layers" in parts:
        chosen = _layers(trial, n_layers, ranking)
        if out.get("train.features", settings.train.features) != "logprob":
            out["train.layers"] = chosen
    if "decide" in parts:
        out |= _decide(trial)
    if "gamma" in parts:
        out["bench.gamma"] = trial.suggest_int("gamma", 1, 4)
    labels = out.get("cluster.labels", settings.cluster.labels)
    if labels == "own" and out.get("decide.rule", settings.decide.rule) == "joint":
        out["decide.rule"] = "ratio"  # own labels say nothing of the decision itself
    return out


def _probe(trial: Any) -> dict[str, Any]:
    predictor = trial.suggest_categorical("predictor", ["linear", "mlp"])
    depth = trial.suggest_int("depth", 1, 3)
    width = trial.suggest_categorical("width", WIDTHS)
    dropout = trial.suggest_float("dropout", 0.0, 0.4, step=0.1)
    loss = trial.suggest_categorical("loss", ["squared", "binomial", "ordinal"])
    ridge = trial.suggest_categorical("ridge", [3.0, 10.0, 30.0, 100.0, 300.0])
    network = {"train.hidden_sizes": [width] * depth, "train.dropout": round(dropout, 1)}
    return {
        "train.predictor": predictor,
        "train.features": trial.suggest_categorical("features", ["hidden", "logprob", "both"]),
        "train.calibration": trial.suggest_categorical("calibration", ["none", "isotonic", "sigmoid"]),
        # the joint predictor is linear whatever the others are
        "train.loss": loss,
        "train.ridge": ridge,
        **(network if predictor == "mlp" else {}),
    }


def _layers(trial: Any, n_layers: Mapping[str, int], ranking: Ranking) -> Any:
    kind = trial.suggest_categorical("layers", ["all", "last", "range", "every", "top"])
    start = trial.suggest_float("layers_start", 0.0, 0.8, step=0.2)
    share = trial.suggest_float("layers_share", 0.2, 1.0, step=0.2)
    every = trial.suggest_int("layers_every", 2, 4)
    top = trial.suggest_int("layers_top", 1, 8)
    if kind in ("all", "last"):
        return kind
    if kind == "top":
        return {role: best(scores, top) for role, scores in ranking().items()}
    if kind == "every":  # counted from the last layer, so that it is one of them
        return {role: list(range(n - 1, -1, -every))[::-1] for role, n in n_layers.items()}
    return {role: stretch(n, start, share) for role, n in n_layers.items()}


def best(scores: Sequence[float], k: int) -> list[int]:
    """The `k` layers with the highest scores, ascending."""
    return sorted(sorted(range(len(scores)), key=lambda i: -scores[i])[:k])


def stretch(n: int, start: float, share: float) -> list[int]:
    """A contiguous range of `n` layers: from a share of the depth on, a share of them long, one layer at least."""
    first = min(n - 1, round(start * n))
    return list(range(first, min(n, first + max(1, round(share * n)))))


def _decide(trial: Any) -> dict[str, Any]:
    """A rule with a threshold needs no bias: exp(bias) * score >= threshold is another threshold of the score."""
    drawn = trial.suggest_categorical("verdict", ["threshold", "drawn"]) == "drawn"
    threshold = round(trial.suggest_float("threshold", 0.02, 1.0), 3)
    bias = round(trial.suggest_float("bias", -3.0, 2.0), 2)
    return {
        "decide.rule": trial.suggest_categorical("rule", ["ratio", "joint", "p"]),
        "decide.far": trial.suggest_categorical("far", ["flag", "reject"]),
        "decide.threshold": None if drawn else threshold,
        "decide.bias": bias if drawn else 0.0,
    }

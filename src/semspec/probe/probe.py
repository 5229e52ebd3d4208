"""The trained artefact: one model's probe, saved as safetensors and JSON, evaluated with numpy alone.

A linear probe is stored folded: standardisation, principal components and weights are a few vectors over the raw
reading, so that a step costs as many dot products. A network keeps its projection. No pickle, no
scikit-learn, no torch.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np

from semspec import files
from semspec.errors import UserError
from semspec.probe import linear, network
from semspec.probe.calibration import Calibration
from semspec.probe.features import Features
from semspec.probe.linear import Loss
from semspec.probe.novelty import Novelty

FORMAT = 2
BATCH = 256  # rows converted to fp32 at a time


@dataclass
class Probe:
    """Semantic probability of a step under the model of `role`, from that model's reading of the step.

    layers: layers it needs, in this order (empty: token statistics only).
    reading: (layers, hidden size) of the model's full reading.
    arrays: the stored tensors; `config` what else config.json holds.
    """

    role: str
    predictor: Literal["linear", "mlp"]
    layers: list[int]
    reading: tuple[int, int]
    uses_logprob: bool
    arrays: dict[str, np.ndarray]
    calibration: Calibration
    config: dict[str, Any] = field(default_factory=dict)
    loss: Loss = "squared"  # that a linear one was fitted by

    def predict(self, hidden: np.ndarray | None, logprob: np.ndarray | None) -> np.ndarray:
        """Calibrated semantic probability, fp64 `[n]` in (0, 1].

        hidden: `[n, layers, hidden]`, the full reading or only `self.layers` (ignored when `layers` is
        empty);
        logprob: `[n, statistics]` in the order of `engine.statistics.STATISTICS` (ignored unless `uses_logprob`).
        """
        return self.calibration(self.raw(hidden, logprob))

    def far(self, hidden: np.ndarray | None) -> np.ndarray | None:
        """`[n]` bool: states far from those it was trained on; None where it reads no states or has no such limit."""
        chosen, novelty = self._chosen(hidden), Novelty.of(self.arrays, self.layers)
        return None if chosen is None or novelty is None else novelty.far(chosen)

    def raw(self, hidden: np.ndarray | None, logprob: np.ndarray | None) -> np.ndarray:
        """The prediction before calibration, `[n]`."""
        out = self.scores(hidden, logprob)
        return out[:, 0] if self.predictor == "mlp" else linear.link(out, self.loss)

    def scores(self, hidden: np.ndarray | None, logprob: np.ndarray | None) -> np.ndarray:
        """What the prediction is made of, `[n, k]`: a linear one's scores before the link, a network's output."""
        chosen = self._chosen(hidden)
        if chosen is None or len(chosen) <= BATCH:
            return self._scores(chosen, logprob)
        return np.concatenate(
            [
                self._scores(chosen[i : i + BATCH], logprob[i : i + BATCH] if logprob is not None else None)
                for i in range(0, len(chosen), BATCH)
            ]
        )

    def _chosen(self, hidden: np.ndarray | None) -> np.ndarray | None:
        if not self.layers:
            return None
        n_layers, width = self.reading
        if hidden is None or hidden.ndim != 3 or hidden.shape[2] != width:
            shape = None if hidden is None else hidden.shape
            raise ValueError(f"the {self.role} probe needs hidden states [n, {n_layers}, {width}], not {shape}")
        if hidden.shape[1] == len(self.layers):
            return hidden
        if hidden.shape[1] != n_layers:
            known = f"{len(self.layers)} or all {n_layers} layers"
            raise ValueError(f"the {self.role} probe needs {known}, not {hidden.shape[1]}")
        return hidden[:, self.layers]

    def _scores(self, hidden: np.ndarray | None, logprob: np.ndarray | None) -> np.ndarray:
        a = self.arrays
        if self.predictor == "mlp":
            return network.forward(a, self._features().transform(hidden, logprob))[:, None]
        out, k = a["bias"].astype(np.float64)[None], len(a["bias"])
        if hidden is not None:
            x = hidden.reshape(len(hidden), -1).astype(np.float32, copy=False)
            out = out + (x - a["center"].reshape(-1)) @ a["weight"].reshape(k, -1).T
        if self.uses_logprob:
            assert logprob is not None
            out = out + (np.asarray(logprob, np.float32) - a["logprob_center"]) @ a["logprob_weight"].reshape(k, -1).T
        return np.asarray(out, np.float64)

    def _features(self) -> Features:
        names = ("center", "scale", "projection", "logprob_center", "logprob_scale")
        return Features(self.layers, **{k: self.arrays[k] for k in names if k in self.arrays})

    def save(self, folder: Path | str) -> None:
        """Write probe.safetensors and config.json into `folder`."""
        folder = Path(folder)
        config = self.config | {
            "format": FORMAT,
            "role": self.role,
            "predictor": self.predictor,
            "layers": self.layers,
            "reading": list(self.reading),
            "uses_logprob": self.uses_logprob,
            "calibration": self.calibration.to_json(),
            "loss": self.loss,
        }
        files.write_safetensors(folder / "probe.safetensors", self.arrays)
        files.write_json(folder / "config.json", config)

    @classmethod
    def load(cls, folder: Path | str) -> Probe:
        """Read a folder that `save` wrote; a `UserError` when it is missing or of another format."""
        folder = Path(folder)
        config = files.read_json(folder / "config.json")
        if config.get("format") != FORMAT:
            raise UserError(f"{folder} holds no probe of this version; run `semspec stage train` again")
        return cls(
            role=config["role"],
            predictor=config["predictor"],
            layers=config["layers"],
            reading=(config["reading"][0], config["reading"][1]),
            uses_logprob=config["uses_logprob"],
            arrays=files.read_safetensors(folder / "probe.safetensors"),
            calibration=Calibration.from_json(config["calibration"]),
            config=config,
            loss=config["loss"],
        )


def linear_arrays(features: Features, coef: np.ndarray, intercept: np.ndarray) -> dict[str, np.ndarray]:
    """The folded tensors of a linear probe, of coefficients `[k, d]` and intercepts `[k]`."""
    weight, logprob_weight = features.fold(coef)
    arrays: dict[str, np.ndarray] = {"bias": np.asarray(intercept, dtype=np.float64)}
    if weight is not None and features.center is not None:
        arrays |= {"center": features.center, "weight": weight}
    if logprob_weight is not None and features.logprob_center is not None:
        arrays |= {"logprob_center": features.logprob_center, "logprob_weight": logprob_weight}
    return arrays


def mlp_arrays(features: Features, weights: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The tensors of a network probe: its features' and its own."""
    names = ("center", "scale", "projection", "logprob_center", "logprob_scale")
    found = {k: getattr(features, k) for k in names}
    return {k: v for k, v in found.items() if v is not None} | weights

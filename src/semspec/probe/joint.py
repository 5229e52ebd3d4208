"""The decision itself, learned: min(1, p / q) of a drafted step, predicted from both models' views of it.

The paper predicts p and q apart and divides; errors of two predictors do not cancel in a ratio, and each shrinks to its
own mean. Here a linear predictor reads both views at once and is fitted to the acceptance that the labels give, on the
draft's samples, which is what it will have to judge. Everything reported is out-of-fold. Works on arrays and folders;
knows nothing of decoding.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from semspec import files
from semspec.errors import UserError
from semspec.probe import calibration, linear
from semspec.probe.calibration import Calibration
from semspec.probe.probe import FORMAT, Probe, linear_arrays

if TYPE_CHECKING:
    from semspec.probe.crossvalidation import Data
    from semspec.schema import Settings

ROLES = ("target", "draft")  # the order of the columns
_AS_IS = Calibration("none", -np.inf, np.empty(0), np.empty(0))


@dataclass
class Joint:
    """A linear predictor of acceptance: the sum of a part for each model's view, then calibrated.

    parts: {role: linear `Probe` without calibration}.
    """

    parts: dict[str, Probe]
    calibration: Calibration

    @property
    def layers(self) -> dict[str, list[int]]:
        """The layers that it needs of each model."""
        return {role: part.layers for role, part in self.parts.items()}

    def predict(self, views: Mapping[str, tuple[np.ndarray | None, np.ndarray | None]]) -> np.ndarray:
        """Acceptance probability `[n]`, in (0, 1], of {role: (hidden, logprob)} as `Probe.predict` takes them."""
        target, draft = (self.parts[role].scores(*views[role]) for role in ROLES)
        return self.calibration(linear.link(target + draft, self.parts[ROLES[0]].loss))

    def save(self, folder: Path | str) -> None:
        """Write one folder for each part, and config.json."""
        folder = Path(folder)
        for role, part in self.parts.items():
            part.save(folder / role)
        files.write_json(folder / "config.json", {"format": FORMAT, "calibration": self.calibration.to_json()})

    @staticmethod
    def save_untrained(folder: Path | str, why: str) -> None:
        """Leave the reason in place of a predictor, for `load` to give."""
        files.write_json(Path(folder) / "config.json", {"format": FORMAT, "untrained": why})

    @staticmethod
    def is_trained(folder: Path | str) -> bool:
        """Whether `folder` is there, and does not merely hold a reason."""
        path = Path(folder) / "config.json"
        return path.exists() and "untrained" not in files.read_json(path)

    @classmethod
    def load(cls, folder: Path | str) -> Joint:
        """Read a folder that `save` wrote; `UserError` when it is missing or of another format."""
        folder = Path(folder)
        config = files.read_json(folder / "config.json")
        if config.get("format") != FORMAT:
            raise UserError(f"{folder} holds no probe of this version; run `semspec stage train` again")
        if "untrained" in config:
            raise UserError(f"decide.rule: joint can't be used: {config['untrained']}; set it to ratio")
        return cls({r: Probe.load(folder / r) for r in ROLES}, Calibration.from_json(config["calibration"]))


def train_joint(views: Mapping[str, Data], acceptance: np.ndarray, settings: Settings) -> tuple[Joint, np.ndarray]:
    """Fit on the rows where `acceptance` `[n]` is known (not NaN); also out-of-fold predictions `[n]` of every row.

    views: the same samples as both models see them.
    """
    from semspec.probe.crossvalidation import cross_calibrate

    train, floor = settings.train, calibration.floor_of(settings.sample.n)
    fold, known = views["target"].fold, ~np.isnan(acceptance)
    raw = np.zeros(len(acceptance))
    for k in np.unique(fold):
        rows, held = np.flatnonzero(known & (fold != k)), fold == k
        parts = _fit(views, acceptance, rows, settings)
        scores = [part.scores(_rows(views[r].hidden, held), views[r].logprob[held]) for r, part in parts.items()]
        raw[held] = linear.link(np.sum(scores, axis=0), train.loss)
    predicted = cross_calibrate(raw, acceptance, fold, train.calibration, floor)
    rows = np.flatnonzero(known)
    final = calibration.fit(train.calibration, raw[rows], acceptance[rows], floor)
    return Joint(_fit(views, acceptance, rows, settings), final), predicted


def _rows(values: np.ndarray | None, rows: np.ndarray) -> np.ndarray | None:
    return None if values is None else values[rows]


def _fit(views: Mapping[str, Data], label: np.ndarray, rows: np.ndarray, settings: Settings) -> dict[str, Probe]:
    """Linear in the columns of both views, cut into one part for each; the intercepts are the first one's."""
    from semspec.probe.crossvalidation import fit_features

    train = settings.train
    fitted = {r: fit_features(views[r], rows, train, settings.seed) for r in ROLES}
    x = [f.transform(_rows(views[r].hidden, rows), views[r].logprob[rows]) for r, f in fitted.items()]
    weight = np.concatenate([linear.block_weight(f.n_hidden, f.n_logprob) for f in fitted.values()])
    coef, intercept = linear.fit(np.concatenate(x, axis=1), label[rows], train.ridge, weight, train.loss)
    coefs = np.split(coef, [x[0].shape[1]], axis=1)
    config: dict[str, Any] = {"features": train.features, "n_rows": len(rows), "ridge": train.ridge}
    return {
        role: Probe(
            role,
            "linear",
            views[role].layers,
            views[role].reading,
            train.features != "hidden",
            linear_arrays(fitted[role], part, intercept if role == ROLES[0] else 0 * intercept),
            _AS_IS,
            config,
            train.loss,
        )
        for role, part in zip(ROLES, coefs, strict=True)
    }

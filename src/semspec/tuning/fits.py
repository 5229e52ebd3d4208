"""Probes for a trial: trained as the stage `train` trains them, and kept, so that equal ones are trained once.

A rule looks at a part of what that stage makes: at p and q, at p, or at the joint score. Only that part is trained
for a replay. Knows the trainers and a folder; knows nothing of the search.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from semspec import files
from semspec.probe import Joint, Probe
from semspec.probe.crossvalidation import train_role
from semspec.probe.joint import train_joint
from semspec.probe.novelty import fit_novelty
from semspec.probe.training import Material, read_material
from semspec.schema import Settings

LOOKS_AT = {"ratio": ("draft", "target"), "p": ("target",), "joint": ("joint",)}
OF_NETWORK = frozenset({"hidden_sizes", "dropout", "lr", "weight_decay", "epochs", "patience", "batch_size"})
OF_LINEAR = frozenset({"loss", "ridge"})


@dataclass(frozen=True)
class Silent:
    """Stands where a rule does not look: says nothing of p or q, but which layers are seen."""

    layers: list[int]

    def predict(self, hidden: np.ndarray, logprob: np.ndarray) -> np.ndarray:
        return np.full(len(logprob), np.nan)


@dataclass
class Fits:
    """The probes of one project folder with samples and labels, by training parameters."""

    folder: Path  # where they are kept
    root: Path  # whose samples and labels they are trained from
    known: dict[str, Any] = field(default_factory=dict)

    def probes(self, settings: Settings, whole: bool = False) -> dict[str, Any]:
        """{draft, target, joint}, of which those that the rule does not look at are `Silent` or left out.

        whole: all three, as the stage `train` makes them.
        """
        wanted = ("draft", "target", "joint") if whole else LOOKS_AT[settings.decide.rule]
        if settings.decide.far == "reject":
            wanted = tuple(dict.fromkeys(("draft", "target", *wanted)))
        if whole and settings.cluster.labels == "own":
            wanted = ("draft", "target")
        found = {part: self._part(part, settings) for part in wanted}
        for role in ("draft", "target"):
            if role not in found:
                layers = found["joint"].layers[role] if "joint" in found else []
                found[role] = Silent(layers)
        return found

    def _part(self, part: str, settings: Settings) -> Any:
        name = f"{part}-{self._key(part, settings)}"
        if name not in self.known:
            kept, kind = self.folder / name, Joint if part == "joint" else Probe
            if not (kept / "config.json").exists():
                self._train(part, settings).save(kept)
            self.known[name] = kind.load(kept)
        return self.known[name]

    def _key(self, part: str, settings: Settings) -> str:
        """Made of everything that the part depends on, and of nothing else, so that equal probes meet."""
        train = settings.train.model_dump(mode="json")
        linear = part == "joint" or train["predictor"] == "linear"
        unread = (OF_NETWORK if linear else OF_LINEAR) if train["predictor"] != "auto" or linear else frozenset()
        kept: dict[str, Any] = {k: v for k, v in train.items() if k not in unread}
        if part == "joint":
            del kept["predictor"]
        labels = files.sha256(self.root / "data/labels.parquet")
        return files.digest(json.dumps([kept, settings.seed, settings.sample.n, labels], sort_keys=True))

    def _train(self, part: str, settings: Settings) -> Probe | Joint:
        material = self._material(settings)
        if part == "joint":
            return train_joint(material.views, material.truth, settings)[0]
        view = material.views[part]
        probe = train_role(view, settings, measured=False).probe
        if view.hidden is not None:
            probe.arrays |= fit_novelty(view.hidden, material.fold, view.layers, settings.seed).arrays()
        return probe

    def _material(self, settings: Settings) -> Material:
        train = settings.train
        name = f"material {train.features} {train.layers} {train.folds}"
        if name not in self.known:
            for other in [k for k in self.known if k.startswith("material ")]:  # states are large: one set at a time
                del self.known[other]
            self.known[name] = read_material(settings, self.root)
        return self.known[name]  # type: ignore[no-any-return]


def by_layer(settings: Settings, root: Path) -> dict[str, list[float]]:
    """{role: rank correlation of each layer's states, alone, with that role's label}.

    Of a linear probe, on the draft's samples of validation questions: those of a fold that it was not trained on.
    """
    from semspec.probe.evaluation import spearman
    from semspec.study.columns import Table, out_of_fold

    table = Table.load(settings, root)
    scores: dict[str, list[float]] = {}
    for role in ("draft", "target"):
        label = table.label(role)[table.draft]
        found = (out_of_fold(table, role, i, "ridge").raw for i in range(table.hidden[role].shape[1]))
        scores[role] = [spearman(raw[table.draft], label) for raw in found]
    return scores


def kept_by_layer(settings: Settings, root: Path, folder: Path) -> dict[str, list[float]]:
    """`by_layer`, computed once for these labels and kept in `folder`."""
    labels = files.sha256(root / "data/labels.parquet")
    path = folder / f"layers-{files.digest(labels + str(settings.seed) + str(settings.train.folds))}.json"
    if not path.exists():
        files.write_json(path, by_layer(settings, root))
    return files.read_json(path)  # type: ignore[no-any-return]


Ranking = Callable[[], Mapping[str, list[float]]]

"""Do two reasoning steps mean the same? The cascade of plain spelling, mathematics gate and language model.

A step pair passes when the normalised steps are identical, or when the gate finds no contradiction AND the
model agrees. The model is a sentence encoder (cosine), any natural-language-inference classifier (bidirectional
entailment, as the paper does with DeBERTa), or the cross-encoder that the stage `entailment` has made. This module
knows nothing of samples, contexts' origin or labels.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from semspec.errors import UserError
from semspec.files import present, read_json, sha256
from semspec.semantics.cache import Cache
from semspec.semantics.crossencoder import CALIBRATION, MAX_TOKENS
from semspec.semantics.encoders import CosineModel, NliModel
from semspec.semantics.gate import calculates, same_answer, verdict
from semspec.semantics.normalise import normalise

if TYPE_CHECKING:
    from semspec.schema import Backend, Cluster, Settings


class Entailment(Protocol):
    """Decides whether two steps mean the same after the same context."""

    def same(self, context: str, pairs: Sequence[tuple[str, str]]) -> list[bool]: ...


class PairModel(Protocol):
    """Scores pairs of texts; the higher, the more alike. Symmetric in a pair."""

    def score(self, pairs: Sequence[tuple[str, str]]) -> list[float]: ...


class Cascade:
    """Identical -> same; two final answers -> by value; gate "different" -> different; else the model's score
    against `threshold`.

    Where the gate says "same" and one of the steps calculates, the model has little to add and its score is held
    against the lower `calculated`. Without a model the gate decides alone, and "unknown" counts as different. Decisions
    are kept by a hash of what they depend on, for as long as the object lives.
    """

    def __init__(
        self,
        gate: bool,
        model: PairModel | None,
        threshold: float,
        use_context: bool = False,
        calculated: float | None = None,
    ) -> None:
        self.gate, self.model, self.threshold, self.use_context = gate, model, threshold, use_context
        self.calculated = threshold if calculated is None else calculated
        self._decided: dict[bytes, bool] = {}

    def _key(self, context: str, pair: tuple[str, str]) -> bytes:
        parts = [context if self.use_context else "", *sorted(pair)]
        return hashlib.sha256("\0".join(parts).encode("utf-8", "surrogatepass")).digest()

    def same(self, context: str, pairs: Sequence[tuple[str, str]]) -> list[bool]:
        """One decision per pair; the order inside a pair does not matter."""
        keys = [self._key(context, pair) for pair in pairs]
        open_: dict[bytes, tuple[str, str]] = {}
        asked: dict[bytes, float] = {}
        for key, (a, b) in zip(keys, pairs, strict=True):
            if key in self._decided or key in open_:
                continue
            if normalise(a) == normalise(b):
                self._decided[key] = True
                continue
            ends = same_answer(a, b) if self.gate else None
            if ends is not None:
                self._decided[key] = ends
                continue
            found = verdict(a, b) if self.gate else "unknown"
            if found == "different" or self.model is None:
                self._decided[key] = found == "same"
            else:
                open_[key] = (min(a, b), max(a, b))
                done = found == "same" and (calculates(a) or calculates(b))
                asked[key] = self.calculated if done else self.threshold
        if open_ and self.model is not None:
            texts = [(self._text(context, a), self._text(context, b)) for a, b in open_.values()]
            scores = self.model.score(texts)
            self._decided.update((k, s >= asked[k]) for k, s in zip(open_, scores, strict=True))
        return [self._decided[key] for key in keys]

    def _text(self, context: str, step: str) -> str:
        return f"{context}\n\n{step}" if self.use_context and context else step

    def prepare(self, steps: Sequence[tuple[str, str]]) -> None:
        """Optional: let the model read (context, step) in full batches before pairs of them are asked for."""
        embed = getattr(self.model, "embed", None)
        if embed is not None:
            embed([self._text(context, step) for context, step in steps])


# Similarity or probability from which a pair is the same, and that for steps that calculate; see `Cascade`.
THRESHOLDS = {"cosine": (0.6, 0.4), "nli": (0.0, 0.0)}
MADE = "data/entailment"  # by the stage `entailment`
CACHE = "data/cache/entailment.sqlite3"


def check(chosen: Cluster) -> None:
    """`UserError` for thresholds that take all for the same: the context in both texts makes every similarity high."""
    asked = [chosen.threshold, *([chosen.calculated] if chosen.gate else [])]
    if chosen.context and chosen.entailment != "nli" and "auto" in asked:
        raise UserError(
            f"with cluster.context the thresholds that suit {chosen.entailment} take all steps for the same; "
            "set cluster.threshold and cluster.calculated, or cluster.entailment to nli"
        )


def build(settings: Settings, root: Path) -> Cascade:
    """The cascade that `cluster` in params.yaml describes; its model is fetched where it is missing."""
    chosen = settings.cluster
    threshold, calculated = thresholds(chosen, root)
    model = pair_model(chosen.entailment, settings, root)
    return Cascade(chosen.gate, model, threshold, chosen.context, calculated)


def pair_model(kind: Backend, settings: Settings, root: Path) -> PairModel:
    """The model of one backend, which keeps what it finds out in `root`/data/cache."""
    from semspec.models import describe, ensure

    trust = settings.models.trust_remote_code
    name = settings.cluster.nli_model if kind == "nli" else settings.models.encoder
    if kind == "crossencoder":
        folder, identity = root / MADE, sha256(present(root / MADE / "model.safetensors"))
    else:
        folder, identity = ensure(name, trust), json.dumps(describe(name), sort_keys=True)
    cache = Cache(root / CACHE, f"{kind} {identity}")
    if kind == "cosine":
        return CosineModel(folder, trust_remote_code=trust, cache=cache)
    if kind == "nli":
        return NliModel(folder, trust_remote_code=trust, cache=cache)
    return NliModel(folder, MAX_TOKENS, trust, strict=False, plain=True, cache=cache)


def thresholds(chosen: Cluster, root: Path) -> tuple[float, float]:
    """`threshold` and `calculated` of a cascade: the settings', and for "auto" those that suit the model."""
    check(chosen)
    if chosen.entailment == "crossencoder":
        found = calibrated(root)
        if found is None:
            raise UserError("there is no cross-encoder here; run `semspec stage entailment`")
        usual = (found["threshold"], found["calculated"]) if chosen.gate else (found["alone"],) * 2
    else:
        usual = THRESHOLDS[chosen.entailment]
    a, b = (u if c == "auto" else c for u, c in zip(usual, (chosen.threshold, chosen.calculated), strict=True))
    return a, b


def calibrated(root: Path) -> dict[str, float] | None:
    """The thresholds of the cross-encoder that the stage `entailment` made; None where it made none."""
    found = read_json(root / MADE / CALIBRATION)
    return found["thresholds"] if found else None

"""Do two reasoning steps mean the same? The cascade of plain spelling, mathematics gate and language model.

A step pair passes when the normalised steps are identical, or when the gate finds no contradiction AND the
model agrees. The model is either a sentence encoder (cosine) or any natural-language-inference classifier
(bidirectional entailment, as the paper does with DeBERTa). This module knows nothing of samples, contexts'
origin or labels.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from semspec.errors import UserError
from semspec.semantics.gate import calculates, same_answer, verdict
from semspec.semantics.normalise import normalise

if TYPE_CHECKING:
    from semspec.config import Cluster

# The encoder always sees ROWS texts, padded to a multiple of GRAIN tokens: shapes that depend on a text alone
# keep its vector independent, to the last bit, of what it is embedded with.
ROWS = 8
GRAIN = 16
NLI_ROWS = 16


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


def _load(auto: str, folder: Path | str, trust_remote_code: bool = False) -> tuple[Any, Any, str]:
    """Tokenizer, model (fp32, evaluation mode) and device, from a local folder or hub id."""
    import torch
    import transformers
    from safetensors import SafetensorError

    transformers.utils.logging.disable_progress_bar()

    try:
        tokenizer = transformers.AutoTokenizer.from_pretrained(str(folder), trust_remote_code=trust_remote_code)
        model = getattr(transformers, auto).from_pretrained(
            str(folder), dtype=torch.float32, trust_remote_code=trust_remote_code, use_safetensors=True
        )
    except (OSError, ValueError, KeyError, ImportError, RuntimeError, SafetensorError) as e:
        reason = str(e).strip().splitlines()[0] if str(e).strip() else type(e).__name__
        raise UserError(
            f"cannot load the entailment model '{folder}' ({reason}); name a model hub id or a local folder"
        ) from None
    device = "cuda" if torch.cuda.is_available() else "cpu"
    return tokenizer, model.eval().to(device), device


def _limit(tokenizer: Any, model: Any, most: int) -> int:
    """Token limit of one input. RoBERTa-like models keep two positions for padding."""
    positions = getattr(model.config, "max_position_embeddings", most) or most
    reserved = 2 if getattr(model.config, "model_type", "") in ("roberta", "xlm-roberta", "camembert") else 0
    return max(8, min(most, positions - reserved, tokenizer.model_max_length))


class CosineModel:
    """Cosine of mean-pooled sentence embeddings (all-MiniLM-L6-v2 and its kind), in [-1, 1].

    Texts are normalised first. A text longer than `max_tokens` loses its beginning: steps differ at their
    end.
    """

    def __init__(self, folder: Path | str, max_tokens: int = 256, trust_remote_code: bool = False) -> None:
        self._tokenizer, self._model, self._device = _load("AutoModel", folder, trust_remote_code)
        self._limit = _limit(self._tokenizer, self._model, max_tokens)
        self._tokenizer.truncation_side = "left"
        self._vectors: dict[bytes, np.ndarray] = {}

    @staticmethod
    def _key(text: str) -> bytes:
        return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()

    def embed(self, texts: Sequence[str]) -> np.ndarray:
        """Unit vectors [n, width], fp32. Each depends on its text alone, not on what it is embedded with."""
        plain = [normalise(t).encode("utf-8", "replace").decode("utf-8") for t in texts]
        missing = sorted({t for t in plain if self._key(t) not in self._vectors})
        if missing:
            self._compute(missing)
        return np.stack([self._vectors[self._key(t)] for t in plain]) if plain else np.zeros((0, 0), np.float32)

    def _compute(self, texts: list[str]) -> None:
        import torch

        ids = self._tokenizer(texts, truncation=True, max_length=self._limit)["input_ids"]
        buckets: dict[int, list[int]] = {}
        for i, row in enumerate(ids):
            buckets.setdefault(-(-len(row) // GRAIN) * GRAIN, []).append(i)
        for length in sorted(buckets):
            members = buckets[length]
            for start in range(0, len(members), ROWS):
                chunk = members[start : start + ROWS]
                rows = torch.full((ROWS, length), self._tokenizer.pad_token_id or 0, dtype=torch.long)
                mask = torch.zeros((ROWS, length), dtype=torch.long)
                mask[:, 0] = 1  # an empty row still attends to something
                for r, i in enumerate(chunk):
                    rows[r, : len(ids[i])] = torch.tensor(ids[i])
                    mask[r, : len(ids[i])] = 1
                with torch.inference_mode():
                    hidden = self._model(
                        input_ids=rows.to(self._device), attention_mask=mask.to(self._device)
                    ).last_hidden_state
                    weights = mask.to(hidden)[..., None]
                    pooled = (hidden * weights).sum(1) / weights.sum(1)
                    unit = torch.nn.functional.normalize(pooled, dim=-1).cpu().numpy()
                for r, i in enumerate(chunk):
                    self._vectors[self._key(texts[i])] = unit[r]

    def score(self, pairs: Sequence[tuple[str, str]]) -> list[float]:
        """Cosine of each pair, rounded to 1e-5 so that a threshold does not hang on the last bits."""
        vectors = self.embed([t for pair in pairs for t in pair])
        return [round(float(np.dot(a, b)), 5) for a, b in zip(vectors[0::2], vectors[1::2], strict=True)]


class NliModel:
    """Bidirectional entailment by a sequence classifier whose labels have names (MNLI and its kind).

    Strict: a pair scores the lower of its two entailment probabilities when entailment is the most likely
    label in BOTH directions, and -1 otherwise (paper section on labels; Kuhn et al. 2023). So threshold 0 is
    the paper's rule.
    """

    def __init__(self, name: Path | str, max_tokens: int = 512, trust_remote_code: bool = False) -> None:
        self._tokenizer, self._model, self._device = _load(
            "AutoModelForSequenceClassification", name, trust_remote_code
        )
        self._limit = _limit(self._tokenizer, self._model, max_tokens)
        labels = {int(i): str(label).lower() for i, label in self._model.config.id2label.items()}
        entailing = [i for i, label in labels.items() if label.startswith("entail")]
        if len(entailing) != 1:
            raise UserError(f"'{name}' has labels {sorted(labels.values())}; cluster.nli_model needs 'entailment'")
        self._entailment = entailing[0]

    def _tail(self, text: str) -> str:
        """The end of `text` that fits half of the model's input."""
        room = (self._limit - 4) // 2
        offsets = self._tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)["offset_mapping"]
        return text if len(offsets) <= room else text[offsets[-room][0] :]

    def score(self, pairs: Sequence[tuple[str, str]]) -> list[float]:
        """min over both directions of P(entailment), or -1 where it is not the likeliest both ways."""
        import torch

        tails = {t: self._tail(t) for pair in pairs for t in pair}
        both_ways = {d for a, b in pairs for d in ((a, b), (b, a))}
        directed = sorted(both_ways, key=lambda d: (len(d[0]) + len(d[1]), d))
        found: dict[tuple[str, str], float] = {}
        for start in range(0, len(directed), NLI_ROWS):
            chunk = directed[start : start + NLI_ROWS]
            batch = self._tokenizer(
                [tails[a] for a, _ in chunk],
                [tails[b] for _, b in chunk],
                truncation=True,
                max_length=self._limit,
                padding=True,
                return_tensors="pt",
            ).to(self._device)
            with torch.inference_mode():
                chance = self._model(**batch).logits.float().softmax(-1).cpu()
            for d, row in zip(chunk, chance, strict=True):
                strict = int(row.argmax()) == self._entailment
                found[d] = round(float(row[self._entailment]), 5) if strict else -1.0
        return [min(found[a, b], found[b, a]) for a, b in pairs]


def build(settings: Cluster, encoder_folder: Path | str | None = None, trust_remote_code: bool = False) -> Cascade:
    """The cascade that `cluster` in params.yaml describes; `encoder_folder` is needed for `entailment:
    cosine`.
    """
    model: PairModel
    if settings.entailment == "nli":
        model = NliModel(settings.nli_model, trust_remote_code=trust_remote_code)
    else:
        if encoder_folder is None:
            raise UserError("cluster.entailment is cosine but no sentence encoder is there; run `semspec models pull`")
        model = CosineModel(encoder_folder, trust_remote_code=trust_remote_code)
    return Cascade(settings.gate, model, settings.threshold, settings.context, settings.calculated)

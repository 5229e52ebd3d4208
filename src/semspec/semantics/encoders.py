"""The models behind the cascade: scores of pairs of texts, by a sentence encoder or by a classifier of entailment.

A model is loaded when it meets the first text that its cache does not hold. It knows nothing of gates, thresholds,
contexts or labels.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from semspec.errors import UserError
from semspec.semantics.cache import Cache
from semspec.semantics.normalise import normalise

# The encoder always sees ROWS texts, padded to a multiple of GRAIN tokens: shapes that depend on a text alone
# keep its vector independent, to the last bit, of what it is embedded with.
ROWS = 8
GRAIN = 16
NLI_ROWS = 16


def load(auto: str, folder: Path | str, trust_remote_code: bool = False, **options: Any) -> tuple[Any, Any, str]:
    """Tokenizer, model (fp32, evaluation mode) and device, from a local folder or hub id."""
    import torch
    import transformers
    from safetensors import SafetensorError

    transformers.utils.logging.disable_progress_bar()

    try:
        tokenizer = transformers.AutoTokenizer.from_pretrained(str(folder), trust_remote_code=trust_remote_code)
        model = getattr(transformers, auto).from_pretrained(
            str(folder), dtype=torch.float32, trust_remote_code=trust_remote_code, use_safetensors=True, **options
        )
    except (OSError, ValueError, KeyError, ImportError, RuntimeError, SafetensorError) as e:
        reason = str(e).strip().splitlines()[0] if str(e).strip() else type(e).__name__
        raise UserError(
            f"cannot load the entailment model '{folder}' ({reason}); name a model hub id or a local folder"
        ) from None
    device = "cuda" if torch.cuda.is_available() else "cpu"
    return tokenizer, model.eval().to(device), device


def limit(tokenizer: Any, model: Any, most: int) -> int:
    """Token limit of one input. RoBERTa-like models keep two positions for padding."""
    positions = getattr(model.config, "max_position_embeddings", most) or most
    reserved = 2 if getattr(model.config, "model_type", "") in ("roberta", "xlm-roberta", "camembert") else 0
    return max(8, min(most, positions - reserved, tokenizer.model_max_length))


class CosineModel:
    """Cosine of mean-pooled sentence embeddings (all-MiniLM-L6-v2 and its kind), in [-1, 1].

    Texts are normalised first. A text longer than `max_tokens` loses its beginning: steps differ at their
    end. What is kept is a text's vector: all pairs follow from the vectors, at next to no cost.
    """

    def __init__(
        self, folder: Path | str, max_tokens: int = 256, trust_remote_code: bool = False, cache: Cache | None = None
    ) -> None:
        self._folder, self._most, self._trust = folder, max_tokens, trust_remote_code
        self._cache = cache or Cache()

    @cached_property
    def _loaded(self) -> tuple[Any, Any, str, int]:
        tokenizer, model, device = load("AutoModel", self._folder, self._trust)
        tokenizer.truncation_side = "left"
        return tokenizer, model, device, limit(tokenizer, model, self._most)

    def embed(self, texts: Sequence[str]) -> np.ndarray:
        """Unit vectors [n, width], fp32. Each depends on its text alone, not on what it is embedded with."""
        plain = [normalise(t).encode("utf-8", "replace").decode("utf-8") for t in texts]
        keys = [self._cache.key(t) for t in plain]
        found = self._cache.find(keys)
        missing = sorted({t for t, key in zip(plain, keys, strict=True) if key not in found})
        if missing:
            new = {self._cache.key(t): v.tobytes() for t, v in self._compute(missing).items()}
            self._cache.keep(new)
            found |= new
        if not keys:
            return np.zeros((0, 0), np.float32)
        return np.stack([np.frombuffer(found[key], np.float32) for key in keys])

    def _compute(self, texts: list[str]) -> dict[str, np.ndarray]:
        import torch

        tokenizer, model, device, most = self._loaded
        vectors: dict[str, np.ndarray] = {}
        ids = tokenizer(texts, truncation=True, max_length=most)["input_ids"]
        buckets: dict[int, list[int]] = {}
        for i, row in enumerate(ids):
            buckets.setdefault(-(-len(row) // GRAIN) * GRAIN, []).append(i)
        for length in sorted(buckets):
            members = buckets[length]
            for start in range(0, len(members), ROWS):
                chunk = members[start : start + ROWS]
                rows = torch.full((ROWS, length), tokenizer.pad_token_id or 0, dtype=torch.long)
                mask = torch.zeros((ROWS, length), dtype=torch.long)
                mask[:, 0] = 1  # an empty row still attends to something
                for r, i in enumerate(chunk):
                    rows[r, : len(ids[i])] = torch.tensor(ids[i])
                    mask[r, : len(ids[i])] = 1
                with torch.inference_mode():
                    hidden = model(input_ids=rows.to(device), attention_mask=mask.to(device)).last_hidden_state
                    weights = mask.to(hidden)[..., None]
                    pooled = (hidden * weights).sum(1) / weights.sum(1)
                    unit = torch.nn.functional.normalize(pooled, dim=-1).cpu().numpy()
                for r, i in enumerate(chunk):
                    vectors[texts[i]] = unit[r]
        return vectors

    def score(self, pairs: Sequence[tuple[str, str]]) -> list[float]:
        """Cosine of each pair, rounded to 1e-5 so that a threshold does not hang on the last bits."""
        vectors = self.embed([t for pair in pairs for t in pair])
        return [round(float(np.dot(a, b)), 5) for a, b in zip(vectors[0::2], vectors[1::2], strict=True)]


class NliModel:
    """Bidirectional entailment by a sequence classifier whose labels have names (MNLI and its kind).

    A pair scores the lower of its two entailment probabilities. Strict: -1 unless entailment is the most likely
    label in BOTH directions (paper section on labels; Kuhn et al. 2023), so that threshold 0 is the paper's rule.
    plain: texts are normalised first. What is kept is a direction's score.
    """

    def __init__(
        self,
        name: Path | str,
        max_tokens: int = 512,
        trust_remote_code: bool = False,
        strict: bool = True,
        plain: bool = False,
        cache: Cache | None = None,
    ) -> None:
        self._name, self._most, self._trust = name, max_tokens, trust_remote_code
        self._strict, self._plain = strict, plain
        self._cache = cache or Cache()

    @cached_property
    def _loaded(self) -> tuple[Any, Any, str, int, int]:
        tokenizer, model, device = load("AutoModelForSequenceClassification", self._name, self._trust)
        labels = {int(i): str(label).lower() for i, label in model.config.id2label.items()}
        entailing = [i for i, label in labels.items() if label.startswith("entail")]
        if len(entailing) != 1:
            raise UserError(
                f"'{self._name}' has labels {sorted(labels.values())}; cluster.nli_model needs 'entailment'"
            )
        return tokenizer, model, device, limit(tokenizer, model, self._most), entailing[0]

    def score(self, pairs: Sequence[tuple[str, str]]) -> list[float]:
        """min over both directions of P(entailment); strict: -1 where it is not the likeliest both ways."""
        said = [(normalise(a), normalise(b)) for a, b in pairs] if self._plain else list(pairs)
        directed = {d: self._cache.key(*d) for a, b in said for d in ((a, b), (b, a))}
        found = self._cache.find(directed.values())
        missing = [d for d, key in directed.items() if key not in found]
        if missing:
            new = {directed[d]: np.float64(s).tobytes() for d, s in self._compute(missing).items()}
            self._cache.keep(new)
            found |= new
        value = {d: float(np.frombuffer(found[key], np.float64)[0]) for d, key in directed.items()}
        return [min(value[a, b], value[b, a]) for a, b in said]

    def _compute(self, directed: Sequence[tuple[str, str]]) -> dict[tuple[str, str], float]:
        """P(entailment) of (premise, hypothesis), rounded to 1e-5."""
        import torch

        tokenizer, model, device, most, entailment = self._loaded
        tails = {t: tail(tokenizer, t, most) for pair in directed for t in pair}
        directed = sorted(directed, key=lambda d: (len(d[0]) + len(d[1]), d))
        found: dict[tuple[str, str], float] = {}
        for start in range(0, len(directed), NLI_ROWS):
            chunk = directed[start : start + NLI_ROWS]
            batch = tokenizer(
                [tails[a] for a, _ in chunk],
                [tails[b] for _, b in chunk],
                truncation=True,
                max_length=most,
                padding=True,
                return_tensors="pt",
            ).to(device)
            with torch.inference_mode():
                chance = model(**batch).logits.float().softmax(-1).cpu()
            for d, row in zip(chunk, chance, strict=True):
                likeliest = int(row.argmax()) == entailment
                found[d] = round(float(row[entailment]), 5) if likeliest or not self._strict else -1.0
        return found


def tail(tokenizer: Any, text: str, most: int) -> str:
    """The end of `text` that fits half of an input of `most` tokens."""
    room = (most - 4) // 2
    offsets = tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)["offset_mapping"]
    return text if len(offsets) <= room else text[offsets[-room][0] :]

"""What engines have in common: a tokenizer and the layers that are pooled; those of this process, sessions and batches.

Text and tokens are a Hugging Face tokenizer's, whatever runs the model, so the same model has the same token ids, the
same prompt and the same ends on every engine. A subclass of `LocalEngine` adds the passes: `session`, `rows` and
`read_apart`. Knows nothing of how a pass is computed.
"""

from __future__ import annotations

import hashlib
import json
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import Any, Protocol

import numpy as np
import torch

from semspec.engine import batch
from semspec.engine.base import Sampling, Segment, Session, Step, StepEnds
from semspec.engine.pool import Pool
from semspec.engine.statistics import Tokens
from semspec.errors import UserError

DIGITS = frozenset("0123456789")  # byte-level vocabularies use other characters that are digits to Unicode for bytes


class Rows(Protocol):
    """Continuations that are written side by side, a token each in one pass."""

    logits: torch.Tensor  # `[rows, vocab]`, after the last token of each

    def append(self, tokens: torch.Tensor, pool: Pool) -> None:
        """Put a token `[rows]` behind each."""

    def keep(self, rows: torch.Tensor) -> None:
        """Go on with these rows alone."""


def _decoder(tokenizer: Any) -> Callable[[tuple[int, ...]], str]:
    """Tokens to text, the last few thousand kept: texts that are written side by side often say the same."""

    @lru_cache(maxsize=4096)
    def decode(tokens: tuple[int, ...]) -> str:
        return tokenizer.decode(list(tokens), skip_special_tokens=True, clean_up_tokenization_spaces=False)

    return decode


class TextEngine:
    """What an engine says without running its model. `eos`: the ids that end a text beside the tokenizer's own."""

    context: int | None = None

    def __init__(
        self, tokenizer: Any, name: str, eos: Iterable[int], n_layers: int, hidden_size: int, device: torch.device
    ) -> None:
        self.tokenizer, self.name, self.device = tokenizer, name, device
        self._decoded = _decoder(tokenizer)
        self.n_layers, self.hidden_size = n_layers, hidden_size
        ids = list(eos)
        own = getattr(tokenizer, "eos_token_id", None)
        self.eos_ids = frozenset(ids + ([own] if own is not None else []))
        if not self.eos_ids:
            raise UserError(f"model '{name}' names no end-of-sequence token; it can't be used for decoding")
        self.eos_id: int = own if own is not None else ids[0]
        self._special = frozenset(getattr(tokenizer, "all_special_ids", []))
        pieces = tokenizer.convert_ids_to_tokens(list(range(len(tokenizer))))
        self._numeric = np.array([not DIGITS.isdisjoint(piece or "") for piece in pieces], dtype=bool)
        self._numeric[[i for i in self._special if i < len(pieces)]] = False
        vocab = json.dumps(sorted(tokenizer.get_vocab().items())).encode()
        self.vocab_id = hashlib.sha256(vocab).hexdigest()[:16]
        self.passes: Counter[int] = Counter()
        self.slots: dict[int, int] = {}  # observed layer -> its row of a pooled state
        self.observe(None)

    # --- tokens and text

    def encode(self, text: str) -> list[int]:
        """Token ids of plain text: no BOS is added and text that looks like a special token is not one."""
        return self.tokenizer.encode(text, add_special_tokens=False, split_special_tokens=True)

    def decode(self, tokens: Sequence[int]) -> str:
        return self._decoded(tuple(tokens))

    def text_after(self, anchor: Sequence[int], tokens: Sequence[int]) -> str:
        """Text of `tokens` where they follow `anchor` (some tokenizers drop a leading space otherwise)."""
        head = self.decode(anchor)
        whole = self.decode((*anchor, *tokens))
        return whole[len(head) :] if whole.startswith(head) else self.decode(tokens)

    def chat(self, question: str, system: str) -> list[int]:
        if not self.tokenizer.chat_template:
            text = f"{system}\n\nQuestion: {question}\n\nAnswer:\n"
            bos = self.tokenizer.bos_token_id
            return ([bos] if bos is not None else []) + self.encode(text)
        user = {"role": "user", "content": question}
        try:
            text = self._template([{"role": "system", "content": system}, user])
        except Exception:  # templates without a system role raise errors of their own making
            text = self._template([{"role": "user", "content": f"{system}\n\n{question}"}])
        return self.tokenizer.encode(text, add_special_tokens=False)

    def turn(self, text: str, begun: str = "") -> list[int]:
        if not self.tokenizer.chat_template:
            return self.encode(f"\n\nQuestion: {text}\n\nAnswer:\n{begun}")
        mark = "@answer@"  # what stands after the first answer is the same whatever that answer is
        first = [{"role": "user", "content": "?"}, {"role": "assistant", "content": mark}]
        whole = self._template([*first, {"role": "user", "content": text}])
        return self.tokenizer.encode(whole.partition(mark)[2] + begun, add_special_tokens=False)

    def _template(self, messages: list[dict[str, str]]) -> str:
        return self.tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)

    def segment_tokens(self, segment: Segment) -> list[int]:
        """The segment in this model's tokens; `ValueError` when it has none."""
        tokens = list(segment.tokens) or self.encode(segment.text) + ([self.eos_id] if segment.eos else [])
        if not tokens:
            raise ValueError("an empty segment can't be read")
        return tokens

    def tokens(self, ids: Sequence[int], logprob: np.ndarray, entropy: np.ndarray, top: np.ndarray) -> Tokens:
        """The scores of a step's tokens, with the knowledge which of them hold a digit."""
        at = np.asarray(ids, dtype=np.int64)
        return Tokens(logprob, entropy, top, self._numeric[np.minimum(at, len(self._numeric) - 1)])

    # --- hidden states

    def observe(self, layers: Sequence[int] | None) -> None:
        chosen = list(range(self.n_layers)) if layers is None else list(layers)
        if not all(0 <= i < self.n_layers for i in chosen):
            raise UserError(f"layers {chosen} of '{self.name}' do not all exist; it has {self.n_layers}")
        self.slots = {layer: slot for slot, layer in enumerate(chosen)}

    def new_pool(self, rows: int = 1, segments: int = 1) -> Pool:
        return Pool(len(self.slots), rows, segments, self.hidden_size, self.device)


class LocalEngine(TextEngine, ABC):
    """See `engine.base.Engine`; the model is in this process."""

    max_rows: int  # of one pass of `rows` or `read_apart`

    @abstractmethod
    def session(self, prompt: Sequence[int]) -> Session: ...

    @abstractmethod
    def rows(self, prompts: Sequence[Sequence[int]], counts: Sequence[int]) -> Rows:
        """`counts[i]` rows that continue prompt i, at most `max_rows` in all."""

    @abstractmethod
    def read_apart(
        self, prompt: Sequence[int], parts: Sequence[Sequence[int]], pool: Pool
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Read token lists in one pass, each after the prompt and seeing itself alone; nothing of them is kept.

        Logits `[1, vocab]` after the prompt, and `[tokens, vocab]` after each token of the parts, end to end.
        """

    def sample_many(
        self,
        prompts: Sequence[Sequence[int]],
        n: int,
        step_ends: StepEnds,
        sampling: Sampling,
        max_tokens: int,
        seeds: Sequence[int],
    ) -> list[list[Step]]:
        return batch.sample_many(self, prompts, n, step_ends, sampling, max_tokens, seeds)

    def read_many(self, prompts: Sequence[Sequence[int]], segments: Sequence[Sequence[Segment]]) -> list[list[Step]]:
        return batch.read_many(self, prompts, segments)

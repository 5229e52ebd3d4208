"""The llama.cpp engine: a quantised GGUF file as it is, on the CPU.

Text, sampling, steps and batches are those of every engine of this process (local.py, session.py, batch.py); this
module adds the passes. Texts of one batch are parallel sequences over one shared prompt.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from semspec.engine.llama import PASS_TOKENS, Llama
from semspec.engine.local import LocalEngine
from semspec.engine.pool import Pool
from semspec.engine.session import CachedText
from semspec.errors import UserError

PREFIXES = 16  # prompts that stay in the cache: those of a shard are sampled from and then read after


class LlamaCppText(CachedText):
    """A text that is a sequence of its own."""

    engine: LlamaCppEngine

    def _open(self) -> None:
        self._sequence = self.engine.llama.acquire()
        weakref.finalize(self, self.engine.llama.release, self._sequence)

    def _compute(self, tokens: list[int], pool: Pool | None, keep: int) -> torch.Tensor:
        n, start = len(tokens), len(self.tokens)
        outputs = np.arange(n) >= (0 if pool else n - keep)
        logits = self.engine.compute(tokens, [self._sequence] * n, range(start, start + n), outputs, pool)
        return logits[-keep:]

    def _crop(self, n_tokens: int) -> None:
        self.engine.llama.crop(self._sequence, len(self.tokens) - n_tokens)


class LlamaCppRows:
    """Parallel sequences; see `engine.local.Rows`."""

    def __init__(self, engine: LlamaCppEngine, prompts: Sequence[Sequence[int]], counts: Sequence[int]) -> None:
        self._engine = engine
        self._sequences: list[int] = []
        self._lengths: list[int] = []
        weakref.finalize(self, _release, engine.llama, self._sequences)
        logits = []
        for prompt, count in zip(prompts, counts, strict=True):
            sequence, after = engine.prefix(prompt)
            self._sequences += [engine.llama.fork(sequence) for _ in range(count)]
            self._lengths += [len(prompt)] * count
            logits.append(after.expand(count, -1))
        self.logits = torch.cat(logits)

    def append(self, tokens: torch.Tensor, pool: Pool) -> None:
        every = np.ones(len(tokens), dtype=bool)
        self.logits = self._engine.compute(tokens.tolist(), self._sequences, self._lengths, every, pool)
        self._lengths = [n + 1 for n in self._lengths]

    def keep(self, rows: torch.Tensor) -> None:
        kept = rows.tolist()
        _release(self._engine.llama, [s for i, s in enumerate(self._sequences) if i not in set(kept)])
        self._sequences[:] = [self._sequences[i] for i in kept]
        self._lengths = [self._lengths[i] for i in kept]


def _release(llama: Llama, sequences: Iterable[int]) -> None:
    for sequence in sequences:
        llama.release(sequence)


class LlamaCppEngine(LocalEngine):
    """A GGUF model whose cache can be rolled back. `eos`: the ids that end a text beside the tokenizer's own."""

    max_rows = 128

    def __init__(self, llama: Llama, tokenizer: Any, name: str, eos: Iterable[int]) -> None:
        super().__init__(tokenizer, name, eos, llama.n_layers, llama.hidden_size, torch.device("cpu"))
        self.llama, self.context = llama, llama.context
        self._prefixes: dict[tuple[int, ...], tuple[int, torch.Tensor]] = {}

    def compute(
        self,
        tokens: Sequence[int],
        sequences: Sequence[int],
        positions: Sequence[int],
        outputs: np.ndarray,
        pool: Pool | None = None,
    ) -> torch.Tensor:
        """Passes over tokens, each at the end of its sequence; logits `[outputs, vocab]`. See `Llama.decode`."""
        logits, before = [], self.llama.watched
        for start in range(0, len(tokens), PASS_TOKENS):
            part = slice(start, start + PASS_TOKENS)

            def take(layer: int, states: np.ndarray, start: int = start) -> None:
                assert pool is not None
                found = torch.from_numpy(states)
                # one token a row, or many tokens of one row
                pool.add(self.slots[layer], found[:, None] if pool.weights is None else found[None], start)

            passed = (tokens[part], sequences[part], positions[part], outputs[part])
            logits.append(self.llama.decode(*passed, self.slots, take if pool else None))
        if pool is not None:
            pool.seconds += self.llama.watched - before
        return torch.from_numpy(logits[0] if len(logits) == 1 else np.concatenate(logits))

    def prefix(self, prompt: Sequence[int]) -> tuple[int, torch.Tensor]:
        """Sequence and last logits `[1, vocab]` of a prompt, computed once while it is among the last `PREFIXES`."""
        key = tuple(prompt)
        if key not in self._prefixes:
            sequence, n = self.llama.acquire(), len(key)
            try:
                logits = self.compute(key, [sequence] * n, range(n), np.arange(n) == n - 1)
            except BaseException:
                self.llama.release(sequence)
                raise
            self._prefixes[key] = sequence, logits
            while len(self._prefixes) > PREFIXES:
                self.llama.release(self._prefixes.pop(next(iter(self._prefixes)))[0])
        return self._prefixes[key]

    def session(self, prompt: Sequence[int]) -> LlamaCppText:
        return LlamaCppText(self, prompt)

    def rows(self, prompts: Sequence[Sequence[int]], counts: Sequence[int]) -> LlamaCppRows:
        return LlamaCppRows(self, prompts, counts)

    def read_apart(
        self, prompt: Sequence[int], parts: Sequence[Sequence[int]], pool: Pool
    ) -> tuple[torch.Tensor, torch.Tensor]:
        start, (sequence, logits) = len(prompt), self.prefix(prompt)
        own = [self.llama.fork(sequence) for _ in parts]
        tokens = [t for part in parts for t in part]
        sequences = [s for s, part in zip(own, parts, strict=True) for _ in part]
        positions = [start + i for part in parts for i in range(len(part))]
        try:
            passed = self.compute(tokens, sequences, positions, np.ones(len(tokens), dtype=bool), pool)
        finally:
            _release(self.llama, own)
        return logits, passed


def load(gguf: Path, folder: Path, name: str, threads: int = 0, fp32_attention: bool = False) -> LlamaCppEngine:
    """Load a GGUF file; its tokenizer from `folder` if one is there, else from the file. Raises `UserError`.

    fp32_attention: compute attention, and keep the cache, in fp32 instead of fp16; for comparisons.
    """
    from transformers import AutoTokenizer, GenerationConfig

    from semspec.engine import cores
    from semspec.engine.transformers import eos_of
    from semspec.models.convert import gguf_tokenizer

    torch.set_num_threads(threads or cores())
    llama = Llama(gguf, name, threads or cores(), fp32_attention=fp32_attention)
    if (folder / "tokenizer.json").is_file():
        tokenizer = AutoTokenizer.from_pretrained(folder)
    else:
        tokenizer = gguf_tokenizer(gguf)
    if len(tokenizer) > llama.n_vocab:
        raise UserError(f"model '{name}': the tokenizer in {folder} has more tokens than {gguf.name}; remove it")
    if (folder / "generation_config.json").is_file():
        eos = eos_of(GenerationConfig.from_pretrained(folder))
    else:
        eos = llama.eos()
    return LlamaCppEngine(llama, tokenizer, name, eos)

"""The Hugging Face engine: the reference implementation of engine/base.py on PyTorch, CPU or GPU.

Pooled hidden states are collected by hooks while the model runs, so they cost no second pass and nothing is stored per
token. This module knows models, caches and tokens; it knows nothing of steps' meaning, probes, or problems.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from semspec.engine import batch, resolve
from semspec.engine.base import Sampling, Segment, Step, StepEnds
from semspec.engine.cache import new_cache
from semspec.engine.int8 import quantise
from semspec.engine.session import TransformersSession
from semspec.engine.statistics import Tokens
from semspec.errors import UserError

DIGITS = frozenset("0123456789")  # byte-level vocabularies use other characters that are digits to Unicode for bytes


class Pool:
    """Sums of hidden states `[layers, rows, segments, hidden]`; `weights` `[rows, segments, tokens]` of a pass."""

    def __init__(self, layers: int, rows: int, segments: int, hidden: int, device: torch.device) -> None:
        self.sums = torch.zeros(layers, rows, segments, hidden, device=device)
        self.weights: torch.Tensor | None = None  # None: one token a row, which counts fully

    def add(self, slot: int, states: torch.Tensor) -> None:
        if self.weights is None:
            self.sums[slot] += states.float()
        else:
            self.sums[slot] += torch.matmul(self.weights, states.float())

    def select(self, rows: torch.Tensor) -> None:
        self.sums = self.sums[:, rows]


class TransformersEngine:
    """Any causal language model of the transformers library whose cache can be rolled back."""

    def __init__(self, model: Any, tokenizer: Any, name: str) -> None:
        self.model, self.tokenizer, self.name = model.eval(), tokenizer, name
        self.config = model.config.get_text_config()
        self.device = next(iter(model.parameters())).device
        self.hidden_size: int = self.config.hidden_size
        self.n_layers: int = self.config.num_hidden_layers
        new_cache(self.config)  # refuse an architecture that cannot roll back now, not in the middle of a run
        eos = model.generation_config.eos_token_id if model.generation_config else None
        ids = [] if eos is None else [eos] if isinstance(eos, int) else list(eos)
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
        self.prefixes: dict[tuple[int, ...], tuple[Any, torch.Tensor]] = {}  # see batch._prefix
        self._pool: Pool | None = None
        self._slots: list[int | None] = []
        self.observe(None)
        for i, layer in enumerate(decoder_layers(model, self.n_layers)):
            layer.register_forward_hook(self._hook(i))

    # --- tokens and text

    def encode(self, text: str) -> list[int]:
        """Token ids of plain text: no BOS is added and text that looks like a special token is not one."""
        return self.tokenizer.encode(text, add_special_tokens=False, split_special_tokens=True)

    def decode(self, tokens: Sequence[int]) -> str:
        return self.tokenizer.decode(list(tokens), skip_special_tokens=True, clean_up_tokenization_spaces=False)

    def text_after(self, anchor: Sequence[int], tokens: Sequence[int]) -> str:
        """Text of `tokens` where they follow `anchor` (some tokenizers drop a leading space otherwise)."""
        head = self.decode(anchor)
        whole = self.decode([*anchor, *tokens])
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
        self._slots = [chosen.index(i) if i in chosen else None for i in range(self.n_layers)]
        self.n_observed = len(chosen)

    def _hook(self, layer: int):  # type: ignore[no-untyped-def]
        def collect(module: nn.Module, args: Any, output: Any) -> None:
            if self._pool is not None and (slot := self._slots[layer]) is not None:
                self._pool.add(slot, output[0] if isinstance(output, tuple) else output)

        return collect

    def new_pool(self, rows: int = 1, segments: int = 1) -> Pool:
        return Pool(self.n_observed, rows, segments, self.hidden_size, self.device)

    @contextmanager
    def _pooling(self, pool: Pool | None) -> Iterator[None]:
        self._pool = pool
        try:
            yield
        finally:
            self._pool = None

    @torch.inference_mode()
    def forward(self, ids: torch.Tensor, cache: Any, pool: Pool | None = None, **kwargs: Any) -> torch.Tensor:
        """One pass over `ids` `[rows, tokens]`; logits `[rows, kept, vocab]`."""
        with self._pooling(pool):
            return self.model(input_ids=ids, cache=cache, use_cache=True, **kwargs).logits

    # --- running

    def session(self, prompt: Sequence[int]) -> TransformersSession:
        return TransformersSession(self, prompt)

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


def decoder_layers(model: nn.Module, n_layers: int) -> nn.ModuleList:
    """The list of decoder layers, found by its length; the first one that fits is the outermost."""
    for module in model.modules():
        if isinstance(module, nn.ModuleList) and len(module) == n_layers:
            return module
    raise UserError("this model's decoder layers can't be found; choose an ordinary causal language model")


def load(
    folder: Path,
    name: str,
    weights: str = "auto",
    device: str = "auto",
    threads: int = 0,
    remote_code: bool = False,
) -> TransformersEngine:
    """Load a model folder (config.json, safetensors, tokenizer). `UserError` when it is not one."""
    import transformers
    from safetensors import SafetensorError

    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    torch.set_num_threads(threads or cores or 1)
    weights, device = resolve(weights, device)
    on_cpu = device.split(":")[0] == "cpu"
    if weights == "int8" and not on_cpu:
        raise UserError("engine.weights: int8 runs on a CPU only; set it to auto or bf16")
    if not on_cpu and not torch.cuda.is_available():
        raise UserError(f"engine.device is '{device}' but PyTorch sees no GPU; set it to auto or cpu")
    transformers.utils.logging.disable_progress_bar()
    dtype = torch.float32 if weights == "fp32" else torch.bfloat16
    try:
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder, trust_remote_code=remote_code)
        model = transformers.AutoModelForCausalLM.from_pretrained(
            folder, dtype=dtype, trust_remote_code=remote_code, use_safetensors=True
        )
        model = quantise(model) if weights == "int8" else model.to(device)
    except (OSError, ValueError, KeyError, ImportError, RuntimeError, SafetensorError) as e:
        first = str(e).strip().splitlines()[0] if str(e).strip() else type(e).__name__
        raise UserError(f"model '{name}' can't be loaded: {first}") from None
    return TransformersEngine(model, tokenizer, name)

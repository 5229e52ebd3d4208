"""The Hugging Face engine: the reference implementation of engine/base.py on PyTorch, CPU or GPU.

Pooled hidden states are collected by hooks while the model runs, so they cost no second pass and nothing is stored per
token. This module knows models, caches and tokens; it knows nothing of steps' meaning, probes, or problems.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import torch
from torch import nn

from semspec.engine import alone, cores, half, has_int8, packed, prepacked, resolve
from semspec.engine.cache import new_cache
from semspec.engine.half import HalfLinear
from semspec.engine.int8 import Int8Linear
from semspec.engine.lean import make_lean
from semspec.engine.local import LocalEngine
from semspec.engine.pool import Pool
from semspec.engine.prepacked import PrepackedLinear
from semspec.engine.replace import Kind, replace
from semspec.engine.session import CachedText
from semspec.errors import UserError
from semspec.models import mending

_MMAP_THRESHOLD = -3  # M_MMAP_THRESHOLD of malloc.h


class TransformersText(CachedText):
    """A text in a Hugging Face cache."""

    engine: TransformersEngine

    def _open(self) -> None:
        self._cache = new_cache(self.engine.config)

    def _compute(self, tokens: list[int], pool: Pool | None, keep: int) -> torch.Tensor:
        ids = torch.tensor([tokens], device=self.engine.device)
        with alone.one_text():
            return self.engine.forward(ids, self._cache, pool, logits_to_keep=keep)[0]

    def _crop(self, n_tokens: int) -> None:
        self._cache.crop(-n_tokens)


class TransformersEngine(LocalEngine):
    """Any causal language model of the transformers library whose cache can be rolled back."""

    max_rows = 4096  # the caller bounds them by what memory holds

    def __init__(self, model: Any, tokenizer: Any, name: str, threads: int = 0) -> None:
        """threads: of its passes; 0 = what PyTorch has then."""
        self.model, self.threads = model.eval(), threads
        self.config = model.config.get_text_config()
        new_cache(self.config)  # refuse an architecture that cannot roll back now, not in the middle of a run
        device, n_layers = next(iter(model.parameters())).device, self.config.num_hidden_layers
        super().__init__(tokenizer, name, eos_of(model.generation_config), n_layers, self.config.hidden_size, device)
        self.context = context_of(self.config)
        self.prefixes: dict[tuple[int, ...], tuple[Any, torch.Tensor]] = {}  # see packed.py
        self._pool: Pool | None = None
        for i, layer in enumerate(decoder_layers(model, self.n_layers)):
            layer.register_forward_hook(self._hook(i))

    def _hook(self, layer: int):  # type: ignore[no-untyped-def]
        def collect(module: nn.Module, args: Any, output: Any) -> None:
            if self._pool is not None and (slot := self.slots.get(layer)) is not None:
                started = time.perf_counter()
                self._pool.add(slot, output[0] if isinstance(output, tuple) else output)
                self._pool.seconds += time.perf_counter() - started

        return collect

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
        if self.threads and torch.get_num_threads() != self.threads:  # another model has set its own
            torch.set_num_threads(self.threads)
        with self._pooling(pool):
            return self.model(input_ids=ids, cache=cache, use_cache=True, **kwargs).logits

    def session(self, prompt: Sequence[int]) -> TransformersText:
        return TransformersText(self, prompt)

    def rows(self, prompts: Sequence[Sequence[int]], counts: Sequence[int]) -> packed.PackedRows:
        return packed.PackedRows(self, prompts, counts)

    def read_apart(
        self, prompt: Sequence[int], parts: Sequence[Sequence[int]], pool: Pool
    ) -> tuple[torch.Tensor, torch.Tensor]:
        return packed.read_apart(self, prompt, parts, pool)


def _give_back() -> None:
    """Let glibc return large freed tensors to the system. By itself it soon keeps blocks of up to 32 MB, and the caches
    of a sampling batch, which grow a little at a time, leave gigabytes of holes between them."""
    with suppress(OSError, AttributeError):  # another C library
        ctypes.CDLL("libc.so.6").mallopt(_MMAP_THRESHOLD, 16 << 20)


def eos_of(generation_config: Any) -> list[int]:
    """The ids that end a text according to a model's `GenerationConfig`, or to none."""
    eos = generation_config.eos_token_id if generation_config else None
    return [] if eos is None else [eos] if isinstance(eos, int) else list(eos)


def context_of(config: Any) -> int | None:
    """Tokens that a text may have according to a model's configuration; None where a scaled RoPE makes it longer."""
    rope = getattr(config, "rope_parameters", None) or {}
    each = [rope, *(part for part in rope.values() if isinstance(part, dict))]  # of all layers, or of each kind
    if any(part.get("rope_type", "default") != "default" for part in each):
        return None
    return getattr(config, "max_position_embeddings", None)


def decoder_layers(model: nn.Module, n_layers: int) -> nn.ModuleList:
    """The list of decoder layers, found by its length; the first one that fits is the outermost."""
    for module in model.modules():
        if isinstance(module, nn.ModuleList) and len(module) == n_layers:
            return module
    raise UserError("this model's decoder layers can't be found; choose an ordinary causal language model")


def _kind(model: Any, weights: str, device: str) -> Kind | None:
    """What computes the products of linear layers fastest; None: what the model has."""
    if weights == "int8":
        return Int8Linear
    if weights == "bf16" and device.split(":")[0] == "cpu":
        return HalfLinear if half.wanted(model) else PrepackedLinear if prepacked.wanted() else None
    return None


def placed(model: Any, weights: str, device: str) -> Any:
    """A model as `from_pretrained` gives it on its device, its layers in the format's fastest form there."""
    kind = _kind(model, weights, device)
    if kind is None:
        return model.to(device)
    if kind is Int8Linear:
        own = model.config.get_text_config()
        # a model that asks for the name itself would take it for something else
        if own._attn_implementation == "sdpa" and type(model)._supports_attention_backend:
            own._attn_implementation = alone.NAME
        alone.separate(model)
    replace(model, kind)
    make_lean(model)
    return model


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

    threads = threads or cores()
    torch.set_num_threads(threads)
    _give_back()
    weights, device = resolve(weights, device)
    on_cpu = device.split(":")[0] == "cpu"
    if weights == "int8" and not on_cpu:
        raise UserError("engine.weights: int8 runs on a CPU only; set it to auto or bf16")
    if weights == "int8" and not has_int8():
        raise UserError("engine.weights: int8 needs PyTorch's FBGEMM, which is for x86 CPUs; set it to auto or bf16")
    if not on_cpu and not torch.cuda.is_available():
        raise UserError(f"engine.device is '{device}' but PyTorch sees no GPU; set it to auto or cpu")
    transformers.utils.logging.disable_progress_bar()
    dtype = torch.float32 if weights == "fp32" else torch.bfloat16
    try:
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder, trust_remote_code=remote_code)
        model = transformers.AutoModelForCausalLM.from_pretrained(
            folder, dtype=dtype, trust_remote_code=remote_code, use_safetensors=True
        )
        model = placed(model, weights, device)
    except (OSError, ValueError, KeyError, ImportError, RuntimeError, SafetensorError) as e:
        first = str(e).strip().splitlines()[0] if str(e).strip() else type(e).__name__
        raise UserError(f"model '{name}' can't be loaded ({first}); {mending(name)}") from None
    return TransformersEngine(model, tokenizer, name, threads)

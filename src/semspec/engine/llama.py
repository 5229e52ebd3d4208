"""llama.cpp as this project needs it: one GGUF model, a cache of many sequences that grows, one pass at a time.

The only module that touches llama.cpp's C interface. Hidden states are taken out of the compute graph by its
evaluation callback, layer by layer, while a pass runs. A sequence is a text in the cache; copies share its cells.
Knows token ids and arrays; knows nothing of text, sampling or steps.
"""

from __future__ import annotations

import ctypes
import functools
import sys
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from semspec.errors import UserError

PASS_TOKENS = 256  # of one pass; more would cost memory (a row of logits each) and gain no speed
SEQUENCES = 256  # texts in the cache at once: llama.cpp's own limit
FIRST_CELLS = 2048  # tokens that the cache holds at first; it doubles when it is full
_FULL = 1  # what llama_decode returns when the cache has no room

Take = Callable[[int, np.ndarray], None]  # (layer, its output `[tokens, hidden]`), called while a pass runs
_said: deque[str] = deque(maxlen=50)  # what llama.cpp last logged


@functools.cache
def _libraries() -> tuple[Any, Any]:
    """llama_cpp with its log kept to ourselves, and its libggml-base."""
    import llama_cpp
    from llama_cpp._ctypes_extensions import load_shared_library

    keep = llama_cpp.llama_log_callback(lambda level, text, _: _said.append(text.decode(errors="replace")))
    llama_cpp.llama_log_set(keep, ctypes.c_void_p(0))
    ggml = load_shared_library("ggml-base", Path(llama_cpp.__file__).parent / "lib")
    ggml.log_callback = keep  # must live as long as the library
    pointer, size = ctypes.c_void_p, ctypes.c_size_t
    for name, result, arguments in (
        ("ggml_get_name", ctypes.c_char_p, [pointer]),
        ("ggml_nelements", ctypes.c_int64, [pointer]),
        ("ggml_backend_tensor_get", None, [pointer, pointer, size, size]),
    ):
        function = getattr(ggml, name)
        function.restype, function.argtypes = result, arguments
    return llama_cpp, ggml


class _Watch:
    """What the pass that runs now has to give: named tensors, each to `take`."""

    def __init__(self, ggml: Any, hidden_size: int) -> None:
        self.wanted: dict[bytes, int] = {}
        self.take: Take | None = None
        self.seconds = 0.0  # that fetching them and what is done with them have taken
        name, count, get = ggml.ggml_get_name, ggml.ggml_nelements, ggml.ggml_backend_tensor_get

        def on_tensor(tensor: int, ask: bool, _: Any) -> bool:
            # asked about each of a thousand tensors first, then handed the wanted ones when they are computed
            if ask:
                return bool(self.wanted) and name(tensor) in self.wanted
            started = time.perf_counter()
            states = np.empty((count(tensor) // hidden_size, hidden_size), dtype=np.float32)
            get(tensor, states.ctypes.data, 0, states.nbytes)
            self.take(self.wanted[name(tensor)], states)  # type: ignore[misc]
            self.seconds += time.perf_counter() - started
            return True

        self.on_tensor = on_tensor


class Llama:
    """A loaded model and its cache. `UserError` for a file that llama.cpp can't run as this project needs."""

    def __init__(
        self, path: Path, name: str, threads: int, cells: int = FIRST_CELLS, fp32_attention: bool = False
    ) -> None:
        self._lib, ggml = _libraries()
        self._threads, self._fp32 = threads, fp32_attention
        settings = self._lib.llama_model_default_params()
        settings.n_gpu_layers = 0
        # built by GCC 12, AMX's kernels crash in any pass of two tokens (the tile configuration's stores are optimised
        # away), and the only switch turns off all kernels that repack weights
        settings.use_extra_bufts = b"AMX_INT8 = 1" not in self._lib.llama_print_system_info()
        self._model = self._lib.llama_model_load_from_file(str(path).encode(), settings)
        if not self._model:
            raise UserError(f"model '{name}' can't be loaded by llama.cpp: {_reason()}")
        weakref.finalize(self, self._lib.llama_model_free, self._model)
        if self._lib.llama_model_is_recurrent(self._model) or self._lib.llama_model_is_hybrid(self._model):
            raise UserError(
                f"model '{name}' has a cache that cannot be rolled back freely; choose a model with full attention "
                "in every layer"
            )
        self._vocab = self._lib.llama_model_get_vocab(self._model)
        self.n_layers: int = self._lib.llama_model_n_layer(self._model)
        self.hidden_size: int = self._lib.llama_model_n_embd(self._model)
        self.n_vocab: int = self._lib.llama_vocab_n_tokens(self._vocab)
        scaled = self._lib.llama_model_rope_freq_scale_train(self._model) != 1
        self.context: int | None = None if scaled else self._lib.llama_model_n_ctx_train(self._model)
        self._watch = _Watch(ggml, self.hidden_size)
        self._callback = self._lib.ggml_backend_sched_eval_callback(self._watch.on_tensor)
        self._use(cells, self._open(cells))
        self._free = list(range(SEQUENCES))
        self._released: list[int] = []  # maybe in the middle of a pass, so they are cleared before the next one
        self._new_batch()
        self._check(name)

    def eos(self) -> list[int]:
        """The ids that end a text according to the file."""
        found = (self._lib.llama_vocab_eos(self._vocab), self._lib.llama_vocab_eot(self._vocab))
        return [i for i in found if i >= 0]

    @property
    def watched(self) -> float:
        """Seconds, so far, that handing hidden states to `take` has taken."""
        return self._watch.seconds

    # --- sequences

    def acquire(self) -> int:
        """An empty sequence."""
        self._clear_released()
        if not self._free:
            raise RuntimeError(f"more than {SEQUENCES} texts at once in one model's cache")
        return self._free.pop()

    def fork(self, sequence: int) -> int:
        """A new sequence that begins with all of `sequence`, which costs no memory."""
        new = self.acquire()
        self._lib.llama_memory_seq_cp(self._memory, sequence, new, -1, -1)
        return new

    def crop(self, sequence: int, length: int) -> None:
        """Forget what stands behind the first `length` tokens."""
        if not self._lib.llama_memory_seq_rm(self._memory, sequence, length, -1):
            raise RuntimeError("llama.cpp can't take tokens back out of this model's cache")

    def release(self, sequence: int) -> None:
        """Give a sequence back; may be called at any time, by a finalizer too."""
        self._released.append(sequence)

    def _clear_released(self) -> None:
        while self._released:
            sequence = self._released.pop()
            self._lib.llama_memory_seq_rm(self._memory, sequence, -1, -1)
            self._free.append(sequence)

    # --- passes

    def decode(
        self,
        tokens: Sequence[int],
        sequences: Sequence[int],
        positions: Sequence[int],
        outputs: np.ndarray,
        layers: Iterable[int] = (),
        take: Take | None = None,
    ) -> np.ndarray:
        """One pass over at most `PASS_TOKENS` tokens, each at the end of its sequence; logits `[outputs, vocab]`.

        outputs: bool `[tokens]`, whose logits are wanted. With `take` the outputs of these layers are handed to it;
        every token must be an output then, for the last layer computes no others.
        """
        assert take is None or outputs.all()
        self._clear_released()
        n = len(tokens)
        for name, values in (("token", tokens), ("seq", sequences), ("pos", positions), ("logits", outputs)):
            self._arrays[name][:n] = values
        self._batch.n_tokens = n
        self._watch.take = take
        self._watch.wanted = {b"l_out-%d" % i: i for i in layers} if take else {}
        with _raising():
            while (code := self._lib.llama_decode(self._context, self._batch)) == _FULL:
                self._grow()
        if code:
            raise RuntimeError(f"llama.cpp failed to compute a pass (code {code}): {_reason()}")
        wanted = int(outputs.sum())
        if not wanted:
            return np.empty((0, self.n_vocab), dtype=np.float32)
        logits = self._lib.llama_get_logits(self._context)
        return np.ctypeslib.as_array(logits, shape=(wanted, self.n_vocab)).copy()

    def _new_batch(self) -> None:
        """llama.cpp's own structure of a pass, over arrays that are filled anew for each."""
        kinds = {"token": np.int32, "pos": np.int32, "seq": np.int32, "logits": np.int8, "n_seq_id": np.int32}
        self._arrays = {name: np.ones(PASS_TOKENS, dtype=kind) for name, kind in kinds.items()}
        ids = self._arrays["seq"]
        each = [ids[i:].ctypes.data_as(ctypes.POINTER(ctypes.c_int32)) for i in range(PASS_TOKENS)]
        self._seq_pointers = (ctypes.POINTER(ctypes.c_int32) * PASS_TOKENS)(*each)
        self._batch = self._lib.llama_batch()
        for name, kind in (("token", ctypes.c_int32), ("pos", ctypes.c_int32), ("n_seq_id", ctypes.c_int32)):
            setattr(self._batch, name, self._arrays[name].ctypes.data_as(ctypes.POINTER(kind)))
        self._batch.logits = self._arrays["logits"].ctypes.data_as(ctypes.POINTER(ctypes.c_int8))
        self._batch.seq_id = ctypes.cast(self._seq_pointers, ctypes.POINTER(ctypes.POINTER(ctypes.c_int32)))

    def _open(self, cells: int) -> Any:
        """A context with room for so many tokens; `UserError` when there is no memory for it."""
        settings = self._lib.llama_context_default_params()
        settings.n_ctx, settings.n_batch, settings.n_ubatch = cells, PASS_TOKENS, PASS_TOKENS
        settings.n_seq_max, settings.kv_unified = SEQUENCES, True  # one pool of cells, which sequences share
        settings.n_threads = settings.n_threads_batch = self._threads
        settings.cb_eval = self._callback
        if self._fp32:  # else keys, values and the products with them are fp16
            settings.type_k = settings.type_v = self._lib.GGML_TYPE_F32
            settings.flash_attn_type = self._lib.LLAMA_FLASH_ATTN_TYPE_DISABLED
        context = self._lib.llama_init_from_model(self._model, settings)
        if not context:
            raise UserError(
                f"llama.cpp can't open a cache of {cells} tokens ({_reason()}); free some memory, or ask for less"
            )
        return context

    def _use(self, cells: int, context: Any) -> None:
        self._cells, self._context = cells, context
        self._close = weakref.finalize(self, self._lib.llama_free, context)
        self._memory = self._lib.llama_get_memory(context)

    def _grow(self) -> None:
        """Twice the cells; every sequence goes along. Where that fails, the cache stays as it is."""
        size = self._lib.llama_state_get_size(self._context)
        state = (ctypes.c_uint8 * size)()
        if self._lib.llama_state_get_data(self._context, state, size) != size:
            raise RuntimeError(f"llama.cpp could not copy its cache: {_reason()}")
        larger = self._open(2 * self._cells)
        if self._lib.llama_state_set_data(larger, state, size) != size:
            self._lib.llama_free(larger)
            raise RuntimeError(f"llama.cpp could not restore its cache: {_reason()}")
        self._close()
        self._use(2 * self._cells, larger)

    def _check(self, name: str) -> None:
        """Run two tokens, and see that every layer's output has a name and a row for each."""
        found: dict[int, int] = {}
        sequence = self.acquire()
        self.decode(
            [0, 0],
            [sequence] * 2,
            [0, 1],
            np.ones(2, dtype=bool),
            range(self.n_layers),
            lambda layer, states: found.update({layer: len(states)}),
        )
        self.release(sequence)
        if found != dict.fromkeys(range(self.n_layers), 2):
            raise UserError(
                f"llama.cpp does not show the layers of model '{name}'; run it with `engine.kind: transformers`"
            )


def _reason() -> str:
    """The last thing llama.cpp complained about."""
    lines = [line.strip() for line in "".join(_said).splitlines()]
    found = [line for line in lines if "error" in line or "fail" in line]
    return found[-1] if found else "no reason given"


@contextmanager
def _raising() -> Iterator[None]:
    """Raise what went wrong in a callback, Ctrl-C included, after the pass; ctypes would print it and go on."""
    caught: list[BaseException] = []
    before, sys.unraisablehook = sys.unraisablehook, lambda e: caught.append(e.exc_value or e.exc_type())
    try:
        yield
    finally:
        sys.unraisablehook = before
    if caught:
        raise caught[0]

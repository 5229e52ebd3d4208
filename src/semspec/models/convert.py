"""A GGUF file turned, once, into a bf16 safetensors folder that transformers loads in seconds.

transformers does the conversion, so names, shapes and values are its own. It opens the file anew for the
configuration, the tokenizer and the weights, though, each time walks 450,000 metadata entries, builds a table
of names per module, and unpacks the weights on one core; `_faster` mends that for the length of one
conversion without touching the result. Knows nothing of where the file came from.

A tensor `output.weight` in the file stays a separate `lm_head.weight`, even where the original model ties it
to the embedding. Both Qwen files hold one, quantised more finely than the embedding (in the 0.5B: Q8_0
against Q5_0), so tying them would change the logits; it costs 0.27 and 0.47 GB. SmolLM2's file has none:
there the two are tied and stored once.
"""

from __future__ import annotations

import functools
import os
import sys
import warnings
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

from tqdm import tqdm

from semspec.errors import UserError
from semspec.files import save_model


def convert(gguf: Path, folder: Path, name: str, progress: bool = True) -> None:
    """Write config.json, model.safetensors (bf16) and the tokenizer of `gguf` into `folder`.

    Not atomic: give it a temporary folder. Raises `UserError` for a file that transformers cannot read, `OSError` where
    the disk is full.
    """
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

    where = {"pretrained_model_name_or_path": str(gguf.parent), "gguf_file": gguf.name}
    with _quiet(), _faster(name, progress):
        try:
            model = AutoModelForCausalLM.from_pretrained(
                **where, quantization_config=GgufConfig(dequantize=True), dtype=torch.bfloat16
            )
            tokenizer = AutoTokenizer.from_pretrained(**where)
        except (ValueError, KeyError, NotImplementedError) as e:
            reason = str(e).splitlines()[0] if str(e) else type(e).__name__
            raise UserError(f"{gguf.name} cannot be converted: {reason}; name a safetensors folder instead") from None
        save_model(model, tokenizer, folder, max_shard_size="1000GB")


def gguf_tokenizer(gguf: Path) -> Any:
    """The tokenizer that a GGUF file holds, as transformers' own. `UserError` when transformers can't read it."""
    from transformers import AutoTokenizer

    with _quiet(), _faster(gguf.stem, False):
        try:
            return AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name)
        except (ValueError, KeyError, NotImplementedError, OSError) as e:
            reason = str(e).splitlines()[0] if str(e) else type(e).__name__
            raise UserError(
                f"the tokenizer in {gguf.name} cannot be read ({reason}); put the model's tokenizer.json beside it"
            ) from None


@contextmanager
def _quiet() -> Iterator[None]:
    """Hold back transformers' own bars and advice while it works; one line of progress is enough."""
    from transformers.utils import logging

    level, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.set_verbosity(level)
        if bars:
            logging.enable_progress_bar()


def _unpack(data: Any, kind: Any, workers: ThreadPoolExecutor, cores: int) -> Any:
    """gguf.dequantize, a share of the rows on each core (rows are independent)."""
    import numpy as np
    from gguf.quants import dequantize

    if data.ndim < 2 or len(data) < 64 * cores:
        return dequantize(data, kind)
    return np.concatenate(list(workers.map(lambda rows: dequantize(rows, kind), np.array_split(data, cores))))


@contextmanager
def _faster(name: str, progress: bool) -> Iterator[None]:
    """Replace, while open, what is slow in reading a GGUF file, and show one line of progress.

    transformers 5.24 imports each of these names inside the function that uses it. If a later version does
    not, the conversion still comes out the same, only slower.
    """
    import gguf
    import numpy as np
    from transformers import modeling_gguf_pytorch_utils as loader

    class Reader(gguf.GGUFReader):
        """Reads through a plain array: slicing a memory map costs several times as much."""

        _array: Any = None

        @property
        def data(self) -> Any:
            return self._array

        @data.setter
        def data(self, value: Any) -> None:
            self._array = np.asarray(value)

        def _get(self, offset: int, dtype: Any, count: int = 1, override_order: Any = None) -> Any:
            if sys.byteorder != "little" or self.byte_order != "I":
                return super()._get(offset, dtype, count, override_order)
            return self._array[offset : offset + np.dtype(dtype).itemsize * int(count)].view(dtype)

    load = loader.load_gguf_checkpoint
    header = functools.cache(lambda path: load(path, return_tensors=False))

    def load_once(path: Any, return_tensors: bool = False, **kwargs: Any) -> Any:
        return load(path, return_tensors=True, **kwargs) if return_tensors else header(str(path))

    def bar(tensors: Any, **_: Any) -> Any:
        return tqdm(tensors, desc=f"{name}: to bf16", unit="tensor", disable=not progress)

    cores = os.cpu_count() or 1
    with ExitStack() as stack:
        workers = stack.enter_context(ThreadPoolExecutor(cores))

        def replace(owner: Any, attribute: str, value: Any) -> None:
            stack.enter_context(patch.object(owner, attribute, value))

        replace(gguf, "GGUFReader", functools.cache(Reader))
        replace(gguf, "get_tensor_name_map", functools.cache(gguf.get_tensor_name_map))
        replace(gguf, "dequantize", lambda data, kind: _unpack(data, kind, workers, cores))
        replace(loader, "load_gguf_checkpoint", load_once)
        replace(loader, "tqdm", bar)
        yield

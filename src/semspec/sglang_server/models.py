"""SGLang's models with pooled hidden states. SGLang finds `EntryClass` and takes these classes in place of its own.

Written against SGLang 0.5.23. Pipeline parallelism is not supported: a stage sees its own layers only.
"""

from __future__ import annotations

from functools import wraps
from typing import Any

from sglang.srt.models.llama import LlamaForCausalLM
from sglang.srt.models.qwen2 import Qwen2ForCausalLM
from sglang.srt.models.qwen3 import Qwen3ForCausalLM

from semspec.sglang_server.pooling import Pooling
from semspec.sglang_server.protocol import KEY


def pooled(base: type) -> type:
    """`base`, a class of causal language models, with hidden states for the requests that ask for them."""

    class Pooled(base):  # type: ignore[misc]
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            self.pooling = Pooling(list(self.model.layers), self.model.norm)
            _publish(self.pooling)

        @wraps(base.forward)  # type: ignore[attr-defined]  # SGLang looks at its parameters
        def forward(self, input_ids: Any, positions: Any, forward_batch: Any, *args: Any, **kwargs: Any) -> Any:
            batch = forward_batch
            if not batch.forward_mode.is_extend() or batch.rids is None:
                return super().forward(input_ids, positions, batch, *args, **kwargs)
            read = batch.rids, batch.extend_prefix_lens_cpu, batch.extend_seq_lens_cpu
            with self.pooling.over(*read, input_ids.device):
                return super().forward(input_ids, positions, batch, *args, **kwargs)

    Pooled.__name__ = Pooled.__qualname__ = base.__name__  # by which SGLang finds it
    return Pooled


def _publish(pooling: Pooling) -> None:
    """Put the states of a finished request into its `meta_info`.

    SGLang's way would be a scheduler of one's own, which its server can't be told to use; so its streamer's hook is
    set. It runs in the process of the model, behind the pass.
    """
    from sglang.srt.managers.scheduler_components.output_streamer import SchedulerOutputStreamer

    def build(self: Any, requests: list[Any]) -> dict[str, list[list[Any]]]:
        found = [pooling.take(r.rid) if r.finished() else None for r in requests]
        return {KEY: [[f] if f else [] for f in found]} if any(found) else {}

    SchedulerOutputStreamer.has_additional_customized_info = True
    SchedulerOutputStreamer.build_additional_customized_info = build


EntryClass = [pooled(base) for base in (LlamaForCausalLM, Qwen2ForCausalLM, Qwen3ForCausalLM)]

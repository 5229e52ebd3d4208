"""llama.cpp by the library xllamacpp (prebuilt wheels): plain decoding, and its own speculation with a draft model.

`Peer` completes token ids greedily through the library's server, in this process. Knows nothing of what it is compared
with.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Any

from semspec.engine import cores
from semspec.errors import UserError


@dataclass(frozen=True)
class Completion:
    """seconds: wall, prompt included; token_seconds: of one decoded token, as the library itself measures it."""

    text: str
    n_tokens: int
    ended: bool
    seconds: float
    token_seconds: float
    drafted: int
    kept: int


class Peer:
    """A GGUF file. draft: another one, whose tokens it verifies; draft_tokens: of one draft, at most."""

    def __init__(
        self, gguf: Path, threads: int = 0, context: int = 2048, draft: Path | None = None, draft_tokens: int = 0
    ) -> None:
        try:
            import xllamacpp
        except ImportError:
            raise UserError("the peer library is missing; run `pip install -e '.[peers]'`") from None
        params = xllamacpp.CommonParams()
        params.model.path, params.n_ctx, params.n_parallel, params.verbosity = str(gguf), context, 1, 0
        pools = [params.cpuparams, params.cpuparams_batch]
        if draft is not None:
            params.speculative.types = [xllamacpp.common_speculative_type.COMMON_SPECULATIVE_TYPE_DRAFT_SIMPLE]
            own = params.speculative.draft
            own.mparams.path = str(draft)
            own.n_max = draft_tokens or own.n_max
            pools += [own.cpuparams, own.cpuparams_batch]
        for pool in pools:
            pool.n_threads = threads or cores()
        self._server = xllamacpp.Server(params)

    def complete(self, prompt: Sequence[int], max_tokens: int, ignore_eos: bool = False) -> Completion:
        """The greedy continuation; nothing of an earlier prompt is used again."""
        asked = {
            "prompt": list(prompt),
            "n_predict": max_tokens,
            "temperature": 0,
            "cache_prompt": False,
            "ignore_eos": ignore_eos,
        }
        started = perf_counter()
        said: dict[str, Any] = self._server.handle_completions(asked)
        taken = perf_counter() - started
        if "choices" not in said:
            raise UserError(f"xllamacpp does not answer: {said.get('error', said)}")
        (choice,), timings = said["choices"], said["timings"]
        return Completion(
            choice["text"],
            said["usage"]["completion_tokens"],
            choice["finish_reason"] == "stop",
            taken,
            timings["predicted_per_token_ms"] / 1e3,
            timings.get("draft_n", 0),
            timings.get("draft_n_accepted", 0),
        )

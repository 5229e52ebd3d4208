"""The SGLang engine: a model that another process runs, on GPUs, and that is spoken to over HTTP.

A text is sent whole each time; the server has its beginning in its prefix cache, so going back costs nothing and is
only remembered here. Steps are written by the server's own sampler as a stream, which is ended where the step ends.
Whoever looks at a step's states or scores has it read, in one pass, as if another model had written it; so decoding
runs at the server's full speed, and a method that looks at nothing pays nothing. Exact verification asks for
distributions and draws here, as every engine does: the 64 likeliest tokens that come over the wire are all that
`Sampling` looks at.

What the server can't give: sampling with our own random numbers (its own are repeatable on a GPU alone, with
--enable-deterministic-inference), and the tail of a distribution, so entropies are estimates.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from semspec.engine.base import Propose, Sampling, Segment, Step, StepEnds, StopReason
from semspec.engine.local import TextEngine
from semspec.engine.pool import Pool
from semspec.engine.server import Reading, Server
from semspec.engine.session import CachedText
from semspec.errors import UserError

WRITTEN_AT_ONCE = 64  # continuations that are streamed side by side


class Written(NamedTuple):
    """What `SglangEngine.write` wrote; `upcoming`: the token drawn behind it."""

    tokens: list[int]
    text: str
    stop: StopReason
    upcoming: int | None = None


class WrittenStep(Step):
    """A step whose `scores` and `pooled` are computed when they are first looked at."""

    def __init__(self, made: Written, seconds: float, read: Callable[[], Step]) -> None:
        self.tokens, self.text, self.stop = made.tokens, made.text, made.stop
        self.seconds, self.passes, self._read = seconds, len(made.tokens), read

    def __getattr__(self, name: str) -> Any:
        if name not in ("scores", "pooled"):
            raise AttributeError(name)
        found = self._read()
        self.scores, self.pooled = found.scores, found.pooled
        return getattr(found, name)


class SglangText(CachedText):
    """A text whose cache is the server's prefix cache. The exact methods are those of every engine."""

    engine: SglangEngine  # type: ignore[assignment]
    pools_proposals = False

    def _open(self) -> None:
        self._last_read: tuple[list[int], Reading] | None = None  # the whole text then, and the pass

    def _compute(self, tokens: list[int], pool: Pool | None, keep: int) -> torch.Tensor:
        text = [*self.tokens, *tokens]
        (found,) = self.engine.server.read([text], [[len(text) - keep + 1, len(text)]], None)
        return self.engine.rows(found)

    def _crop(self, n_tokens: int) -> None:
        pass

    def generate(
        self, step_ends: StepEnds, sampling: Sampling, max_tokens: int, propose: Propose | None = None
    ) -> Step:
        if propose:
            return super().generate(step_ends, sampling, max_tokens, propose)
        started = time.perf_counter()
        self._let_go()
        before, layers = list(self.tokens), list(self.engine.slots)
        seed = _mix(sampling.seed, len(before))
        made = self.engine.write(before, self._pending, step_ends, sampling, max_tokens, seed)
        self._append(made.tokens)
        self.engine.passes[1] += len(made.tokens)
        self._pending = made.upcoming
        seconds = time.perf_counter() - started
        return WrittenStep(made, seconds, lambda: self.engine.read(before, [made.tokens], layers)[0][0])

    def read(self, segments: Sequence[Segment]) -> list[Step]:
        started = time.perf_counter()
        self._let_go()
        engine, anchor = self.engine, self.tokens[-4:]
        parts = [engine.segment_tokens(s) for s in segments]
        steps, found = engine.read(self.tokens, parts, list(engine.slots))
        self._append([t for part in parts for t in part])
        self._last_read = list(self.tokens), found
        seconds = time.perf_counter() - started
        total = sum(len(s.tokens) for s in steps)
        for step, segment in zip(steps, segments, strict=True):
            step.text = segment.text or engine.text_after(anchor, step.tokens)
            step.seconds = seconds * len(step.tokens) / total
        return steps

    def follow(self, segments: Sequence[Segment]) -> None:
        self._let_go()
        tokens = [t for s in segments for t in self.engine.segment_tokens(s)]
        self.engine.passes[len(tokens)] += 1
        self._append(tokens)

    def _append(self, tokens: Sequence[int]) -> None:
        """The server has these behind the text, or will have when it needs them."""
        self.tokens += tokens
        self._logits, self._pending, self._read = None, None, None

    def rewrite(
        self, n_tokens: int, step_ends: StepEnds, sampling: Sampling, max_tokens: int, propose: Propose | None = None
    ) -> Step:
        if self._last_read and self._last_read[0] == self.tokens:
            self._read = list(self.engine.rows(self._last_read[1]))
        return super().rewrite(n_tokens, step_ends, sampling, max_tokens, propose)


class SglangEngine(TextEngine):
    """See `engine.base.Engine`."""

    def __init__(
        self, server: Server, tokenizer: Any, name: str, eos: Sequence[int], n_layers: int, hidden_size: int, vocab: int
    ) -> None:
        super().__init__(tokenizer, name, eos, n_layers, hidden_size, torch.device("cpu"))
        self.server, self.vocab = server, vocab

    def session(self, prompt: Sequence[int]) -> SglangText:
        return SglangText(self, prompt)

    def write(
        self,
        text: Sequence[int],
        pending: int | None,
        step_ends: StepEnds,
        sampling: Sampling,
        max_tokens: int,
        seed: int,
    ) -> Written:
        """One step behind `text`; `pending`: its first token, where that is drawn already."""
        if pending is not None and pending in self.eos_ids:
            return Written([pending], "", "eos")
        anchor, tokens, said = list(text[-4:]), [] if pending is None else [pending], ""
        if tokens:
            said = self.text_after(anchor, tokens)
        left = max_tokens - len(tokens)
        if left == 0:
            return Written(tokens, said, "length")
        with closing(self.server.write([*text, *tokens], sampling, left, seed, sorted(self.eos_ids))) as stream:
            for token in stream:
                if token in self.eos_ids:
                    return Written([*tokens, token], said, "eos")
                ahead = self.text_after(anchor, [*tokens, token])
                if tokens and step_ends(said, ahead[len(said) :]):
                    return Written(tokens, said, "step", token)
                tokens.append(token)
                said = ahead
        if len(tokens) < max_tokens:
            raise UserError(
                f"the SGLang server at {self.server.url} ended a text of '{self.name}' after {len(tokens)} of "
                f"{max_tokens} tokens; give it a longer --context-length"
            )
        return Written(tokens, said, "length")

    def read(
        self, text: Sequence[int], parts: Sequence[Sequence[int]], layers: Sequence[int]
    ) -> tuple[list[Step], Reading]:
        """Parts that follow `text` one after the other, in one pass; their steps without text and seconds."""
        self.passes[sum(map(len, parts))] += 1
        ends = list(accumulate(map(len, parts), initial=len(text)))
        (found,) = self.server.read([[*text, *(t for part in parts for t in part)]], [ends], layers)
        return self._steps(parts, found, len(layers)), found

    def _steps(self, parts: Sequence[Sequence[int]], found: Reading, n_layers: int) -> list[Step]:
        scores = found.scores(self.vocab)
        if found.pooled.shape[1:] != (n_layers, self.hidden_size):
            raise UserError(
                f"the SGLang server at {self.server.url} has states of {found.pooled.shape[1:]}, and '{self.name}' of "
                f"{(n_layers, self.hidden_size)}; it runs another model ({self.server.model()})"
            )
        steps = []
        for i, (start, end) in enumerate(pairwise(accumulate(map(len, parts), initial=0))):
            part = list(parts[i])
            stop: StopReason = "eos" if part[-1] in self.eos_ids else "read"
            steps.append(Step(part, "", self.tokens(part, *(x[start:end] for x in scores)), found.pooled[i], stop))
        return steps

    def rows(self, found: Reading) -> torch.Tensor:
        """Logits `[n + 1, vocab]`, what lies beyond the likeliest tokens spread evenly over the rest."""
        logprobs = torch.from_numpy(np.array(found.logprobs))
        left = (1 - logprobs.double().exp().sum(1)).clamp_min(1e-30) / max(1, self.vocab - logprobs.shape[1])
        rows = left.log().float()[:, None].expand(-1, self.vocab).contiguous()
        return rows.scatter_(1, torch.from_numpy(found.ids.astype(np.int64)), logprobs)

    def sample_many(
        self,
        prompts: Sequence[Sequence[int]],
        n: int,
        step_ends: StepEnds,
        sampling: Sampling,
        max_tokens: int,
        seeds: Sequence[int],
    ) -> list[list[Step]]:
        places = [(p, i) for p in range(len(prompts)) for i in range(n)]

        def write(place: tuple[int, int]) -> tuple[Written, float]:
            started, (p, i) = time.perf_counter(), place
            made = self.write(prompts[p], None, step_ends, sampling, max_tokens, _mix(seeds[p], i))
            return made, time.perf_counter() - started

        with ThreadPoolExecutor(min(WRITTEN_AT_ONCE, len(places))) as threads:
            written = list(threads.map(write, places))
        read = self._read_apart([(prompts[p], made.tokens) for (p, _), (made, _) in zip(places, written, strict=True)])
        for step, (made, seconds) in zip(read, written, strict=True):
            step.text, step.stop, step.seconds = made.text, made.stop, seconds
        return [read[p * n : (p + 1) * n] for p in range(len(prompts))]

    def read_many(self, prompts: Sequence[Sequence[int]], segments: Sequence[Sequence[Segment]]) -> list[list[Step]]:
        asked = [(p, s) for p, row in zip(prompts, segments, strict=True) for s in row]
        started = time.perf_counter()
        steps = self._read_apart([(p, self.segment_tokens(s)) for p, s in asked])
        seconds = (time.perf_counter() - started) / max(1, sum(len(s.tokens) for s in steps))
        for step, (prompt, segment) in zip(steps, asked, strict=True):
            step.text = segment.text or self.text_after(list(prompt[-4:]), step.tokens)
            step.seconds = seconds * len(step.tokens)
        ends = list(accumulate(map(len, segments), initial=0))
        return [steps[start:end] for start, end in pairwise(ends)]

    def _read_apart(self, asked: Sequence[tuple[Sequence[int], Sequence[int]]]) -> list[Step]:
        """The part behind each text, read by itself."""
        texts = [[*text, *part] for text, part in asked]
        bounds = [[len(text), len(text) + len(part)] for text, part in asked]
        found = self.server.read(texts, bounds, list(self.slots))
        return [self._steps([part], f, len(self.slots))[0] for (_, part), f in zip(asked, found, strict=True)]


def _mix(*numbers: int) -> int:
    """One seed of several numbers, as SGLang takes it."""
    return int(np.random.SeedSequence([n & (2**63 - 1) for n in numbers]).generate_state(1, np.uint64)[0] >> 1)


def load(folder: Path, name: str, url: str, remote_code: bool = False) -> SglangEngine:
    """The model that the server at `url` runs; its tokenizer and configuration are read from `folder`."""
    from transformers import AutoConfig, AutoTokenizer, GenerationConfig

    from semspec.engine.transformers import context_of, eos_of

    server = Server(url)
    server.model()
    try:
        tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=remote_code)
        config = AutoConfig.from_pretrained(folder, trust_remote_code=remote_code).get_text_config()
    except (OSError, ValueError, KeyError) as e:
        raise UserError(f"the tokenizer of '{name}' can't be loaded: {str(e).splitlines()[0]}") from None
    given = (folder / "generation_config.json").is_file()
    eos = eos_of(GenerationConfig.from_pretrained(folder) if given else config)
    size = config.num_hidden_layers, config.hidden_size, config.vocab_size
    engine = SglangEngine(server, tokenizer, name, eos, *size)
    engine.context = context_of(config)
    engine.read(
        engine.encode("1 + 1"), [engine.encode(" = 2")], list(engine.slots)
    )  # a server that can't do this is refused now
    return engine

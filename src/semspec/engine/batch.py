"""Many continuations at once: sampling and reading over prompts that are computed once and shared.

All rows take one token in a pass, and rows that have finished leave the batch. Which rows there are, what they draw and
when they end is decided here; how a pass over them is computed is the engine's (`rows` and `read_apart`).
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import torch

from semspec.engine.base import Sampling, Segment, Step, StepEnds
from semspec.engine.sampling import draw, score

if TYPE_CHECKING:
    from semspec.engine.local import LocalEngine

READ_TOKENS = 512  # tokens of one packed reading pass (one longer text is read by itself)
Place = tuple[int, int]  # which prompt, which of its continuations


class _Row:
    """One continuation while it is written."""

    def __init__(self, place: Place, prompt: Sequence[int], seed: int) -> None:
        self.place, self.anchor = place, list(prompt[-4:])
        self.rng = np.random.default_rng((seed, place[1]))
        self.tokens: list[int] = []
        self.scores: list[tuple[float, ...]] = []  # of each token, as `sampling.score` gives them
        self.text = ""
        self.stop: str | None = None

    def offer(self, token: int, engine: LocalEngine, step_ends: StepEnds, max_tokens: int) -> bool:
        """Take the drawn token, unless the step is complete before it; whether it was taken."""
        if len(self.tokens) == max_tokens:
            self.stop = "length"
            return False
        if token in engine.eos_ids:
            self.tokens.append(token)
            return True
        ahead = engine.text_after(self.anchor, [*self.tokens, token])
        if self.tokens and step_ends(self.text, ahead[len(self.text) :]):
            self.stop = "step"
            return False
        self.tokens.append(token)
        self.text = ahead
        return True


def sample_many(
    engine: LocalEngine,
    prompts: Sequence[Sequence[int]],
    n: int,
    step_ends: StepEnds,
    sampling: Sampling,
    max_tokens: int,
    seeds: Sequence[int],
) -> list[list[Step]]:
    """See `Engine.sample_many`; `engine.max_rows` rows in ONE batch, so the caller bounds `len(prompts) * n`."""
    places = [(p, i) for p in range(len(prompts)) for i in range(n)]
    steps: dict[Place, Step] = {}
    for start in range(0, len(places), engine.max_rows):
        rows = [_Row(place, prompts[place[0]], seeds[place[0]]) for place in places[start : start + engine.max_rows]]
        steps |= _write(engine, prompts, rows, step_ends, sampling, max_tokens)
    return [[steps[p, i] for i in range(n)] for p in range(len(prompts))]


def _write(
    engine: LocalEngine,
    prompts: Sequence[Sequence[int]],
    rows: list[_Row],
    step_ends: StepEnds,
    sampling: Sampling,
    max_tokens: int,
) -> dict[Place, Step]:
    """Write all `rows` to their ends; those of one prompt lie together."""
    started = time.perf_counter()
    counts = Counter(row.place[0] for row in rows)
    batch = engine.rows([prompts[p] for p in counts], list(counts.values()))
    pool = engine.new_pool(rows=len(rows))
    out: dict[Place, Step] = {}

    def finish(index: int) -> None:
        row = rows[index]
        out[row.place] = Step(
            row.tokens,
            row.text,
            engine.tokens(row.tokens, *np.array(row.scores, dtype=np.float32).reshape(-1, 3).T),
            (pool.sums[:, index, 0] / max(1, len(row.tokens))).cpu().numpy(),
            row.stop,  # type: ignore[arg-type]
            time.perf_counter() - started,
        )

    done: set[int] = set()  # rows that are finished and still take part in the passes
    while True:
        uniforms = None
        if sampling.temperature:
            uniforms = torch.tensor([0.0 if i in done else r.rng.random() for i, r in enumerate(rows)])
        drawn = draw(batch.logits, sampling, uniforms)
        scores = torch.stack(score(batch.logits, drawn), dim=-1).tolist()
        for i, (row, token) in enumerate(zip(rows, drawn.tolist(), strict=True)):
            if i in done:
                continue
            if row.offer(token, engine, step_ends, max_tokens):
                row.scores.append(scores[i])
            else:
                finish(i)
                done.add(i)
        if len(done) == len(rows):
            break
        if len(done) * 8 >= len(rows):  # leaving costs a copy of the cache, so leave several at a time
            keep = torch.tensor([i for i in range(len(rows)) if i not in done], device=engine.device)
            batch.keep(keep)
            pool.select(keep)
            drawn = drawn[keep]
            rows, done = [rows[i] for i in keep.tolist()], set()
        batch.append(drawn, pool)
        for i, row in enumerate(rows):
            if i not in done and row.tokens[-1] in engine.eos_ids:
                row.stop = "eos"
                finish(i)
                done.add(i)
        if len(done) == len(rows):
            break
    return out


def read_many(
    engine: LocalEngine, prompts: Sequence[Sequence[int]], segments: Sequence[Sequence[Segment]]
) -> list[list[Step]]:
    """See `Engine.read_many`. A text that occurs twice after a prompt is read once."""
    out: list[list[Step]] = []
    for prompt, alternatives in zip(prompts, segments, strict=True):
        parts = [tuple(engine.segment_tokens(s)) for s in alternatives]
        steps: dict[tuple[int, ...], Step] = {}
        waiting = list(dict.fromkeys(parts))
        while waiting:
            chosen = [waiting.pop(0)]
            while waiting and sum(map(len, chosen)) + len(waiting[0]) <= READ_TOKENS and len(chosen) < engine.max_rows:
                chosen.append(waiting.pop(0))
            steps |= zip(chosen, _read_packed(engine, prompt, chosen), strict=True)
        row = []
        for part, segment in zip(parts, alternatives, strict=True):
            text = segment.text or engine.text_after(list(prompt[-4:]), part)
            row.append(replace(steps[part], text=text))
        out.append(row)
    return out


def _read_packed(engine: LocalEngine, prompt: Sequence[int], parts: Sequence[Sequence[int]]) -> list[Step]:
    """Read token lists in one pass, each attending to the prompt and to itself alone."""
    started = time.perf_counter()
    lengths = torch.tensor([len(p) for p in parts])
    ids = torch.tensor([t for p in parts for t in p], device=engine.device)
    owner = torch.repeat_interleave(torch.arange(len(parts)), lengths)
    pool = engine.new_pool(segments=len(parts))
    pool.weights = (owner[None] == torch.arange(len(parts))[:, None])[None].float().to(engine.device)
    logits, passed = engine.read_apart(prompt, parts, pool)
    scores = [np.empty(len(ids), dtype=np.float32) for _ in range(3)]
    starts = lengths.cumsum(0) - lengths
    behind = score(passed[:-1], ids[1:])
    first = score(logits.expand(len(parts), -1), ids[starts.to(engine.device)])  # these follow the prompt
    for out, *found in zip(scores, behind, first, strict=True):
        out[1:], out[starts.numpy()] = (x.cpu().numpy() for x in found)
    seconds = time.perf_counter() - started
    steps, end = [], 0
    for i, part in enumerate(parts):
        at = slice(end, end + len(part))
        end += len(part)
        pooled = (pool.sums[:, 0, i] / len(part)).cpu().numpy()
        stop = "eos" if part[-1] in engine.eos_ids else "read"
        scored = engine.tokens(part, *(x[at] for x in scores))
        steps.append(Step(list(part), "", scored, pooled, stop, seconds * len(part) / len(owner)))  # type: ignore[arg-type]
    return steps

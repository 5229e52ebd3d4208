"""Many continuations at once: sampling and reading over prompts that are computed once and shared.

Prompts are packed left-padded into one batch, their cache is computed once and repeated for the samples of each, and
rows that have finished leave the batch. Used by the Hugging Face engine; knows its `forward`, caches and pools.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch.nn.functional import pad

from semspec.engine.base import Sampling, Segment, Step, StepEnds
from semspec.engine.cache import new_cache
from semspec.engine.sampling import draw, score

if TYPE_CHECKING:
    from semspec.engine.transformers import TransformersEngine

PREFIXES = 16  # prompts whose caches are kept: those of a shard are sampled from and then read after
READ_TOKENS = 512  # tokens of one packed reading pass (one longer text is read by itself)


def _prefix(engine: TransformersEngine, prompt: Sequence[int]) -> tuple[Any, torch.Tensor]:
    """Cache and last logits `[1, vocab]` of one prompt, computed once while it is among the last `PREFIXES`.

    The cache is shared: whoever appends to it crops it back.
    """
    key = tuple(prompt)
    kept = engine.prefixes
    if key not in kept:
        cache = new_cache(engine.config)
        logits = engine.forward(torch.tensor([list(prompt)], device=engine.device), cache, logits_to_keep=1)
        kept[key] = cache, logits[:, -1]
        while len(kept) > PREFIXES:
            kept.pop(next(iter(kept)))
    return kept[key]


def _packed(
    engine: TransformersEngine, prompts: Sequence[Sequence[int]], n: int
) -> tuple[Any, torch.Tensor, torch.Tensor]:
    """`n` rows of each prompt, left-padded: cache, mask `[rows, longest]` and last logits `[rows, vocab]`."""
    longest = max(map(len, prompts))
    made = [_prefix(engine, prompt) for prompt in prompts]
    cache = new_cache(engine.config)
    for i, layer in enumerate(cache.layers):
        for name in ("keys", "values"):
            parts = [getattr(one.layers[i], name) for one, _ in made]
            rows = torch.cat([pad(p, (0, 0, longest - p.shape[-2], 0)) for p in parts])
            layer.put(name, rows.repeat_interleave(n, 0))
    mask = torch.zeros(len(prompts), longest, dtype=torch.long, device=engine.device)
    for i, prompt in enumerate(prompts):
        mask[i, longest - len(prompt) :] = 1
    return (
        cache,
        mask.repeat_interleave(n, 0),
        torch.cat([logits for _, logits in made]).repeat_interleave(n, 0),
    )


class _Row:
    """One continuation while it is written."""

    def __init__(self, place: tuple[int, int], prompt: Sequence[int], seed: int) -> None:
        self.place, self.anchor = place, list(prompt[-4:])
        self.rng = np.random.default_rng((seed, place[1]))
        self.tokens: list[int] = []
        self.scores: list[tuple[float, ...]] = []  # of each token, as `sampling.score` gives them
        self.text = ""
        self.stop: str | None = None

    def offer(self, token: int, engine: TransformersEngine, step_ends: StepEnds, max_tokens: int) -> bool:
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
    engine: TransformersEngine,
    prompts: Sequence[Sequence[int]],
    n: int,
    step_ends: StepEnds,
    sampling: Sampling,
    max_tokens: int,
    seeds: Sequence[int],
) -> list[list[Step]]:
    """See `Engine.sample_many`; all rows in ONE batch, so the caller bounds `len(prompts) * n`."""
    started = time.perf_counter()
    cache, mask, logits = _packed(engine, prompts, n)
    rows = [_Row((p, i), prompts[p], seeds[p]) for p in range(len(prompts)) for i in range(n)]
    pool = engine.new_pool(rows=len(rows))
    out: list[list[Step | None]] = [[None] * n for _ in prompts]

    def finish(index: int) -> None:
        row = rows[index]
        out[row.place[0]][row.place[1]] = Step(
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
        drawn = draw(logits, sampling, uniforms)
        scores = torch.stack(score(logits, drawn), dim=-1).tolist()
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
            cache.batch_select_indices(keep)
            pool.select(keep)
            mask, drawn = mask[keep], drawn[keep]
            rows, done = [rows[i] for i in keep.tolist()], set()
        positions = mask.sum(1, keepdim=True)
        mask = torch.cat([mask, mask.new_ones(len(rows), 1)], dim=1)
        logits = engine.forward(
            drawn[:, None], cache, pool, attention_mask=mask, position_ids=positions, logits_to_keep=1
        )[:, -1]
        for i, row in enumerate(rows):
            if i not in done and row.tokens[-1] in engine.eos_ids:
                row.stop = "eos"
                finish(i)
                done.add(i)
        if len(done) == len(rows):
            break
    return out  # type: ignore[return-value]


def read_many(
    engine: TransformersEngine, prompts: Sequence[Sequence[int]], segments: Sequence[Sequence[Segment]]
) -> list[list[Step]]:
    """See `Engine.read_many`. A text that occurs twice after a prompt is read once."""
    out: list[list[Step]] = []
    for prompt, alternatives in zip(prompts, segments, strict=True):
        cache, logits = _prefix(engine, prompt)
        length = len(prompt)
        parts = [tuple(engine.segment_tokens(s)) for s in alternatives]
        steps: dict[tuple[int, ...], Step] = {}
        waiting = list(dict.fromkeys(parts))
        while waiting:
            chosen = [waiting.pop(0)]
            while waiting and sum(map(len, chosen)) + len(waiting[0]) <= READ_TOKENS:
                chosen.append(waiting.pop(0))
            try:
                steps |= zip(chosen, _read_packed(engine, cache, logits, chosen, length), strict=True)
            finally:
                cache.crop(-(cache.get_seq_length() - length))
        row = []
        for part, segment in zip(parts, alternatives, strict=True):
            text = segment.text or engine.text_after(list(prompt[-4:]), part)
            row.append(replace(steps[part], text=text))
        out.append(row)
    return out


def _read_packed(
    engine: TransformersEngine, cache: Any, logits: torch.Tensor, parts: Sequence[Sequence[int]], start: int
) -> list[Step]:
    """Read token lists, end to end in ONE row, each attending to the prompt and to itself alone.

    logits: `[1, vocab]`, after the prompt of `start` tokens. The tokens stay in the cache.
    """
    started = time.perf_counter()
    lengths = [len(p) for p in parts]
    ids = torch.tensor([[t for p in parts for t in p]], device=engine.device)
    owner = torch.repeat_interleave(torch.arange(len(parts)), torch.tensor(lengths)).to(engine.device)
    within = torch.cat([torch.arange(n) for n in lengths]).to(engine.device)
    # a token sees the prompt, and what stands before it in its own text
    own = (owner[:, None] == owner[None]) & (within[:, None] >= within[None])
    seen = torch.cat([own.new_ones(len(owner), start), own], dim=1)
    pool = engine.new_pool(segments=len(parts))
    pool.weights = (owner[None] == torch.arange(len(parts), device=engine.device)[:, None])[None].float()
    passed = engine.forward(ids, cache, pool, attention_mask=seen[None, None], position_ids=(start + within)[None])[0]
    guesses = torch.cat([logits, passed[:-1]])
    guesses[within == 0] = logits
    scores = [x.cpu().numpy() for x in score(guesses, ids[0])]
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

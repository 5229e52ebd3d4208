"""One growing text: writing, reading, taking back, and exact verification of proposals, over any engine's cache.

A token is drawn before it is put into the cache, so that a step can end in front of it. It stays the token that comes
next at that place, whatever is read there and taken back: drawn once, it is the model's own, and to draw again because
a draft was rejected would favour texts whose steps end more easily. Proposed tokens behind a step's end stay in the
cache too, until something else is done than to go on writing with proposals.
A subclass computes passes and crops its cache. Knows tokens and logits; knows nothing of who proposes what, or why a
text is taken back.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np
import torch

from semspec.engine.base import Proposal, Propose, Sampling, Segment, Step, StepEnds
from semspec.engine.sampling import draw, nucleus, pick, score, verify
from semspec.engine.statistics import NOTHING

if TYPE_CHECKING:
    from semspec.engine.local import TextEngine
    from semspec.engine.pool import Pool


MARKS = 16  # step boundaries, the last ones, whose logits are kept; a row may be a megabyte


@dataclass
class Ahead:
    """Proposed tokens that are in the cache beyond the settled text, and what the model computed there.

    rows: logits `[vocab]` after the settled text, then after each proposed token. states: `[layers, hidden]` of each
    proposed token, where they are pooled.
    """

    rows: list[torch.Tensor]
    proposal: Proposal = field(default_factory=lambda: Proposal([]))
    states: Sequence[torch.Tensor] = ()
    at: int = 0

    @property
    def tokens(self) -> list[int]:
        return self.proposal.tokens[self.at :]

    def advance(self, sums: Pool | None) -> None:
        """The first proposed token is settled, and counted in `sums`."""
        if sums is not None:
            sums.sums[:, 0, 0] += self.states[self.at]
        self.at += 1
        del self.rows[0]

    def next_token(self, sampling: Sampling, rng: np.random.Generator) -> int:
        """The token that the model writes next."""
        u = rng.random()
        ids, probs = self.proposal.ids, self.proposal.probs
        if self.tokens and ids is not None and probs is not None:
            again = rng.random()
            return verify(self.rows[0], sampling, self.tokens[0], ids[self.at], probs[self.at], (u, again))
        uniforms = None if sampling.temperature == 0 else torch.tensor([u])
        return int(draw(self.rows[0][None], sampling, uniforms)[0])


class CachedText(ABC):
    """One growing text; see `engine.base.Session`. `ValueError` for an empty prompt or an impossible rollback."""

    pools_proposals = True  # does `_compute` add up the states of a pass that verifies proposals?

    def __init__(self, engine: TextEngine, prompt: Sequence[int]) -> None:
        if not prompt:
            raise ValueError("a session needs a prompt of at least one token")
        self.engine = engine
        self.tokens: list[int] = []
        self._open()
        self._logits: torch.Tensor | None = None  # [vocab], after the last token; None: not known since a rollback
        self._marks: dict[int, torch.Tensor] = {}  # length -> logits there, at step boundaries
        self._drawn: dict[int, int] = {}  # length -> the token that was drawn to come next there
        self._held: Ahead | None = None  # in the cache behind `self.tokens`, where the last step ended
        self._read: list[torch.Tensor] | None = None  # [vocab] each: before, and after each token of, the last read
        self._prompt_length = len(prompt)
        self._mark(len(prompt), self._feed(list(prompt), None)[-1])

    @abstractmethod
    def _open(self) -> None:
        """Make the cache, empty."""

    @abstractmethod
    def _compute(self, tokens: list[int], pool: Pool | None, keep: int) -> torch.Tensor:
        """One pass that puts tokens behind `self.tokens` into the cache; logits `[keep, vocab]` of the last ones."""

    @abstractmethod
    def _crop(self, n_tokens: int) -> None:
        """Drop the last `n_tokens` of `self.tokens` from the cache."""

    @property
    def _pending(self) -> int | None:
        """The token that comes next, where it is drawn already."""
        return self._drawn.get(len(self.tokens))

    @_pending.setter
    def _pending(self, token: int | None) -> None:
        if token is None:
            self._drawn.pop(len(self.tokens), None)
        else:
            self._drawn[len(self.tokens)] = token

    def _feed(self, tokens: list[int], pool: Pool | None, keep: int = 1) -> torch.Tensor:
        """Append tokens; logits `[keep, vocab]` of the last `keep` of them."""
        self._let_go()
        logits = self._compute(tokens, pool, keep)
        self.engine.passes[len(tokens)] += 1
        self.tokens += tokens
        self._logits, self._read = logits[-1], None
        return logits

    def _mark(self, length: int, logits: torch.Tensor) -> None:
        """Keep the logits after so many tokens. A clone: a view would hold those of its whole pass in memory."""
        self._marks[length] = logits.clone()
        if len(self._marks) > MARKS:
            del self._marks[min(self._marks)]

    def _next_logits(self) -> torch.Tensor:
        if self._logits is None:
            last = self.tokens[-1]
            self._forget(1)
            self._feed([last], None)
        assert self._logits is not None
        return self._logits

    def generate(
        self, step_ends: StepEnds, sampling: Sampling, max_tokens: int, propose: Propose | None = None
    ) -> Step:
        if propose is None:
            self._let_go()
            ahead = Ahead([self._next_logits()])
            return self._write(step_ends, sampling, max_tokens, None, self.engine.new_pool(), ahead)
        ahead, self._held = self._held or Ahead([self._next_logits()]), None
        self.tokens += ahead.tokens
        sums = self.engine.new_pool() if self.engine.slots and self.pools_proposals else None
        return self._write(step_ends, sampling, max_tokens, propose, sums, ahead, hold=True)

    def rewrite(
        self, n_tokens: int, step_ends: StepEnds, sampling: Sampling, max_tokens: int, propose: Propose | None = None
    ) -> Step:
        if self._read is None or not 0 < n_tokens < len(self._read):
            raise ValueError(f"the last pass read no {n_tokens} tokens that could be rewritten")
        ahead = Ahead(self._read[-n_tokens - 1 :], Proposal(self.tokens[-n_tokens:]))
        self._drop_notes(len(self.tokens) - n_tokens)
        return self._write(step_ends, sampling, max_tokens, propose, None, ahead)

    def _write(
        self,
        step_ends: StepEnds,
        sampling: Sampling,
        max_tokens: int,
        propose: Propose | None,
        sums: Pool | None,
        ahead: Ahead,
        hold: bool = False,
    ) -> Step:
        """Settle one token after the other; a proposed one that is in the cache already costs no pass.

        sums: of the states of what is settled. hold: keep what is ahead at the end for the next step, which then counts
        it.
        """
        started = time.perf_counter()
        engine, start, self._read = self.engine, len(self.tokens) - len(ahead.tokens), None
        rng = np.random.default_rng((sampling.seed, start))
        step = Step([], "", NOTHING, np.empty((0, engine.hidden_size)), "length")
        step.offered = len(ahead.tokens)
        anchor = self.tokens[:start][-4:]
        scores: list[tuple[torch.Tensor, ...]] = []
        drawn = self._drawn.get(start)
        upcoming = ahead.next_token(sampling, rng) if drawn is None else drawn
        while len(step.tokens) < max_tokens:
            is_eos = upcoming in engine.eos_ids
            text = step.text if is_eos else engine.text_after(anchor, [*step.tokens, upcoming])
            if step.tokens and not is_eos and step_ends(step.text, text[len(step.text) :]):
                step.stop = "step"
                break
            scores.append(score(ahead.rows[0][None], torch.tensor([upcoming], device=engine.device)))
            step.tokens.append(upcoming)
            step.text = text
            if ahead.tokens and ahead.tokens[0] == upcoming:
                ahead.advance(sums)
                step.kept += 1
            else:
                self._forget(len(ahead.tokens))
                left = 0 if is_eos else max_tokens - len(step.tokens)
                answer = [*self.tokens[self._prompt_length :], upcoming]
                proposal = propose(answer) if propose and left else Proposal([])
                offered = proposal.tokens if hold else proposal.tokens[:left]
                rows, states = self._verify([upcoming, *offered], sums)
                ahead = Ahead(list(rows), replace(proposal, tokens=offered), states)
                step.offered += len(offered)
                step.passes += 1
            if is_eos:
                step.stop = "eos"
                break
            upcoming = ahead.next_token(sampling, rng)
        if hold and ahead.tokens and ahead.tokens[0] == upcoming and step.stop != "eos":
            step.offered -= len(ahead.tokens)
            del self.tokens[-len(ahead.tokens) :]
            self._held = ahead
        else:
            self._forget(len(ahead.tokens))
        if step.stop != "eos":
            self._pending = upcoming
        self._logits = ahead.rows[0]
        self._mark(len(self.tokens), self._logits)
        if scores:
            joined = (torch.cat(part).cpu().numpy() for part in zip(*scores, strict=True))
            step.scores = engine.tokens(step.tokens, *joined)
        if sums is not None:
            step.pooled = (sums.sums[:, 0, 0] / max(1, len(step.tokens))).cpu().numpy()
            step.pooling = sums.seconds
        step.seconds = time.perf_counter() - started
        return step

    def _verify(self, tokens: list[int], sums: Pool | None) -> tuple[torch.Tensor, Sequence[torch.Tensor]]:
        """Feed a settled token, whose states count, and proposed ones: all logits, and the states of the latter."""
        if sums is None or len(tokens) == 1:
            return self._feed(tokens, sums, keep=len(tokens)), ()
        each = self.engine.new_pool(segments=len(tokens))
        each.weights = torch.eye(len(tokens), device=self.engine.device)[None]
        rows = self._feed(tokens, each, keep=len(tokens))
        first, *states = each.sums[:, 0].unbind(1)
        sums.sums[:, 0, 0] += first
        sums.seconds += each.seconds
        return rows, states

    def _let_go(self) -> None:
        """Drop what was held for a next step."""
        if self._held is not None:
            held, self._held = self._held, None
            self.tokens += held.tokens
            self._forget(len(held.tokens))

    def _drop_notes(self, length: int) -> None:
        """Forget what is known of places beyond so many tokens."""
        self._marks = {k: v for k, v in self._marks.items() if k <= length}
        self._drawn = {k: v for k, v in self._drawn.items() if k <= length}

    def _forget(self, n_tokens: int) -> None:
        """Drop proposed tokens that were not kept from the cache."""
        if n_tokens:
            self._crop(n_tokens)
            del self.tokens[-n_tokens:]

    def draw(self, n_tokens: int, sampling: Sampling) -> Proposal:
        rng = np.random.default_rng((sampling.seed, len(self.tokens)))
        tokens: list[int] = []
        ids, probs = [], []
        self._let_go()
        self._pending = None
        while len(tokens) < n_tokens:
            if tokens:
                self._feed(tokens[-1:], None)
            logits = self._next_logits()[None]
            if sampling.temperature == 0:
                tokens.append(int(draw(logits, sampling, None)[0]))
            else:
                found, weight = nucleus(logits, sampling)
                tokens.append(int(pick(found, weight, torch.tensor([rng.random()]))[0]))
                ids.append(found[0].cpu().numpy())
                probs.append((weight / weight.sum())[0].cpu().numpy())
            if tokens[-1] in self.engine.eos_ids:
                break
        return Proposal(tokens, np.stack(ids), np.stack(probs)) if ids else Proposal(tokens)

    def read(self, segments: Sequence[Segment]) -> list[Step]:
        started = time.perf_counter()
        engine = self.engine
        parts = [engine.segment_tokens(s) for s in segments]
        self._let_go()
        tokens = [t for part in parts for t in part]
        before = self._next_logits()
        pool = engine.new_pool(segments=len(parts))
        pool.weights = torch.zeros(1, len(parts), len(tokens), device=engine.device)
        ends = np.cumsum([len(p) for p in parts])
        for i, (end, part) in enumerate(zip(ends, parts, strict=True)):
            pool.weights[0, i, end - len(part) : end] = 1.0
        start = len(self.tokens)
        logits = self._feed(tokens, pool, keep=len(tokens))
        for end in ends:
            self._mark(start + int(end), logits[end - 1])
        self._read = [before, *logits]
        ids = torch.tensor(tokens, device=engine.device)
        # apart, since joining them would copy all the logits
        first, rest = score(before[None], ids[:1]), score(logits[:-1], ids[1:])
        scores = [torch.cat(part).cpu().numpy() for part in zip(first, rest, strict=True)]
        seconds = time.perf_counter() - started
        steps = []
        for i, (end, part, segment) in enumerate(zip(ends, parts, segments, strict=True)):
            at = slice(int(end) - len(part), int(end))
            pooled = (pool.sums[:, 0, i] / len(part)).cpu().numpy()
            stop = "eos" if part[-1] in engine.eos_ids else "read"
            steps.append(
                Step(
                    part,
                    segment.text or engine.text_after(self.tokens[:start][-4:], part),
                    engine.tokens(part, *(x[at] for x in scores)),
                    pooled,
                    stop,  # type: ignore[arg-type]
                    seconds * len(part) / len(tokens),
                    pooling=pool.seconds * len(part) / len(tokens),
                )
            )
        return steps

    def follow(self, segments: Sequence[Segment]) -> None:
        logits = self._feed([t for s in segments for t in self.engine.segment_tokens(s)], None)
        self._mark(len(self.tokens), logits[-1])

    def rollback(self, n_tokens: int) -> None:
        if n_tokens == 0:
            return
        length = len(self.tokens) - n_tokens
        if n_tokens < 0 or length < self._prompt_length:
            raise ValueError(f"can't roll back {n_tokens} tokens: the prompt itself would be lost")
        self._let_go()
        self._forget(n_tokens)
        self._read = None
        self._drop_notes(length)
        self._logits = self._marks.get(length)

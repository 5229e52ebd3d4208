"""Semantic decoding that salvages what it rejects: our own method.

It decides like `semantic`. But the pass that read a rejected draft has computed the target's logits at each of its
places. So at each place the TARGET's own token is drawn from them, and the draft is kept as far as it equals those
tokens; from the first that differs the target writes on, with the rest of the rejected draft as a source of n-gram
proposals, verified exactly. A rejected step is thus distributed as the target's own, greedy or sampled. (Leviathan's
min(1, p / q) would not do here: a draft that was rejected for its meaning is no sample of q any more.)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from semspec.decoding.base import Transcript
from semspec.decoding.lookup import RejectedLookup
from semspec.decoding.semantic import Drafted, Semantic, Verdict
from semspec.engine.base import Segment, Session, segment


class SemanticHybrid(Semantic):
    """`Semantic` whose rejected steps are written by exact verification of the draft."""

    name = "semantic_hybrid"

    def __init__(self, *args: Any, ngram: int = 3, length: int = 10, **kwargs: Any):
        super().__init__(*args, **kwargs)
        self.ngram, self.length = ngram, length

    def _reject(
        self, writer: Session, reader: Session, dropped: Sequence[Drafted], verdict: Verdict, out: Transcript
    ) -> Segment:
        if not dropped:
            return super()._reject(writer, reader, dropped, verdict, out)
        draft = [t for d in dropped for t in d.segment.tokens]
        lookup = RejectedLookup(draft, self.ngram, self.length)
        limit = out.step_limit(self.target)
        step = reader.rewrite(len(draft), self.setup.step_ends, out.sampling(), limit, lookup)
        writer.rollback(sum(len(d.step.tokens) for d in dropped))
        out.wrote(step, rejected_text=dropped[0].step.text, read_before=len(draft), **asdict(verdict))
        return segment(step, self.target, self.draft)

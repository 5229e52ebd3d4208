"""Semantic speculative decoding (SemanticSpec, arXiv 2602.03708, Algorithm 1): the draft writes steps, the
target reads them in one pass, and two probes decide whether each step means what the target would have said.

The answer's distribution is NOT the target's: after a rejection the target writes the step afresh, no
residual is sampled, and the probes are estimates. Unless the rule has a threshold the verdict is drawn, at
temperature 0 too. Draft and target share text, not necessarily a vocabulary. Knows nothing of how the probes
were trained, nor of the rules (acceptance.py).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import NamedTuple, Protocol

import numpy as np

from semspec.decoding.acceptance import Judgement
from semspec.decoding.base import Answer, OnStep, Setup, TraceStep, Transcript
from semspec.decoding.lookup import Lookup
from semspec.engine.base import Engine, Propose, Segment, Session, Step, segment


class Judges(Protocol):
    """Who says with which probability a drafted step is kept: probes and a rule (`Judge`), or an oracle."""

    @property
    def layers(self) -> Mapping[str, Sequence[int]]:
        """The layers of draft and target that it has to see."""

    def __call__(
        self, written: Sequence[Step], read: Sequence[Step], question: str, said: Sequence[str]
    ) -> list[Judgement]:
        """Steps as the draft wrote and the target read them, after `said` of an answer to `question`."""


class Drafted(NamedTuple):
    """A drafted step: what the draft computed while it wrote it, and the same step in the target's tokens."""

    step: Step
    segment: Segment

    @property
    def n_tokens(self) -> int:
        return len(self.segment.tokens)


@dataclass(frozen=True)
class Verdict:
    """The judgement of one drafted step; all None where nothing could be drafted."""

    p: float | None = None
    q: float | None = None
    a: float | None = None
    far: bool | None = None
    score: float | None = None
    u: float | None = None
    accepted: bool | None = None


class Semantic:
    """Algorithm 1, `gamma` steps drafted per verification. The output is not distributed as the target's.

    lookup: the draft verifies n-grams of its text while it writes: the same steps and states in fewer
    passes, as far as the engine gives a token the same whatever is read with it (docs/method.md).
    """

    name = "semantic"

    def __init__(
        self,
        setup: Setup,
        draft: Engine,
        target: Engine,
        judge: Judges,
        gamma: int = 1,
        lookup: Lookup | None = None,
    ):
        self.setup = setup
        self.draft = draft
        self.target = target
        self.judge = judge
        self.gamma = gamma
        self.lookup = lookup

    def answer(self, question: str, seed: int = 0, on_step: OnStep | None = None) -> Answer:
        out = Transcript(self.setup, self.target, seed, on_step)
        self.draft.observe(self.judge.layers["draft"])
        self.target.observe(self.judge.layers["target"])
        uniform = np.random.default_rng(seed)
        prompt = self.setup.prompt(self.draft, question)
        # the budget is in the target's tokens, of which the draft's may be parts
        writer, propose = self.draft.session(prompt), self.lookup and self.lookup.of(prompt)
        reader = self.target.session(self.setup.prompt(self.target, question))
        unread: list[Segment] = []  # what the target wrote, until the draft needs it

        while not out.done:  # line 2
            with out.phase("draft"):
                if any(s.tokens for s in unread):
                    writer.follow(unread)
                drafts = self._draft(writer, propose, out)  # line 3
            with out.phase("verify"):
                read = self._verify(reader, drafts, out)  # line 4
            for step in read:
                out.pooled(step, "verify")
            with out.phase("score"):
                said = [s.text for s in out.trace]
                judged = self.judge([d.step for d in drafts], read, question, said)  # lines 5, 6, the rule of line 8
            kept, verdict = 0, Verdict()
            for draft, judgement in zip(drafts, judged, strict=True):  # line 7
                u = float(uniform.random())
                verdict = Verdict(*judgement, u, u < judgement.a)  # line 8
                if not verdict.accepted:
                    break
                self._keep(draft, verdict, out)  # line 9
                kept += 1
            unread = []
            if kept < len(drafts) or not drafts:
                with out.phase("write"):
                    unread = [self._reject(writer, reader, drafts[kept:], verdict, out)]  # line 11
        return out.answer()  # lines 14, 15 and 20: the transcript ends at EOS and cuts at the budget

    def _draft(self, writer: Session, propose: Propose | None, out: Transcript) -> list[Drafted]:
        """Up to `gamma` steps, fewer when EOS or the budget comes first."""
        drafts: list[Drafted] = []
        planned = 0
        while len(drafts) < self.gamma and planned < out.left:
            limit = out.step_limit(self.draft, planned)
            step = writer.generate(self.setup.step_ends, out.sampling(), limit, propose)
            out.pooled(step, "draft")
            drafts.append(Drafted(step, segment(step, self.draft, self.target)))
            if not drafts[-1].n_tokens:  # control tokens without text: nothing that the target could read
                drafts.pop()
                writer.rollback(len(step.tokens))
                break
            planned += drafts[-1].n_tokens
            if step.eos:
                break
        return drafts

    def _verify(self, reader: Session, drafts: Sequence[Drafted], out: Transcript) -> list[Step]:
        """What the target computes while it reads all the drafts in one pass."""
        if not drafts:
            return []
        out.verified(sum(d.n_tokens for d in drafts))
        return reader.read([d.segment for d in drafts])

    def _keep(self, draft: Drafted, verdict: Verdict, out: Transcript) -> None:
        truncated = draft.step.stop == "length"
        step = TraceStep("draft", draft.step.text, draft.n_tokens, truncated=truncated, **asdict(verdict))
        out.add(step, draft.segment.tokens, draft.step.eos)

    def _reject(
        self, writer: Session, reader: Session, dropped: Sequence[Drafted], verdict: Verdict, out: Transcript
    ) -> Segment:
        """The target's own step in place of the dropped drafts; returned as the draft will read it."""
        if dropped:
            writer.rollback(sum(len(d.step.tokens) for d in dropped))
            reader.rollback(sum(d.n_tokens for d in dropped))
        self.target.observe([])  # no probe looks at what the target writes
        step = reader.generate(self.setup.step_ends, out.sampling(), out.step_limit(self.target))
        self.target.observe(self.judge.layers["target"])
        rejected = sum(d.n_tokens for d in dropped)
        text = dropped[0].step.text if dropped else None
        out.wrote(step, rejected_text=text, rejected_tokens=rejected, **asdict(verdict))
        return segment(step, self.target, self.draft)

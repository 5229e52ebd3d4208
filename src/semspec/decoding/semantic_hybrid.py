"""Semantic decoding that salvages what it rejects: our own method.

It decides like `semantic`. But the pass that read a rejected draft has computed the target's logits at each of its
places. So at each place the TARGET's own token is drawn from them, and the draft is kept as far as it equals those
tokens; from the first that differs the target writes on, with n-grams of the rejected draft, and else of the text so
far, as proposals, verified exactly. A rejected step is thus distributed as the target's own, greedy or sampled.
(Leviathan's min(1, p / q) would not do here: a draft that was rejected for its meaning is no sample of q any more.)

In the text's place the draft itself may propose (`exact.proposals: draft`). Its new tokens are samples of q,
drawn after the rejection, so for them Leviathan's rule is right: the rest of the step is `speculative_sampling`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from semspec.decoding.base import Transcript
from semspec.decoding.drafts import Drafts
from semspec.decoding.lookup import PromptLookup, RejectedLookup
from semspec.decoding.semantic import Drafted, Semantic, Verdict
from semspec.engine.base import Proposal, Segment, Session, segment
from semspec.errors import UserError


class SemanticHybrid(Semantic):
    """`Semantic` whose rejected steps are written by exact verification of the draft.

    drafted: tokens that the draft proposes at a time, where an n-gram of the rejected draft does not; 0 = those that an
    n-gram of the text proposes. `UserError` when it shall propose, and the models have two vocabularies.
    """

    name = "semantic_hybrid"

    def __init__(self, *args: Any, ngram: int = 3, length: int = 4, drafted: int = 0, **kwargs: Any):
        super().__init__(*args, **kwargs)
        self.ngram, self.length, self.drafted = ngram, length, drafted
        if drafted and self.draft.vocab_id != self.target.vocab_id:
            raise UserError(
                "exact.proposals: draft needs one vocabulary for both models; "
                f"{self.draft.name} and {self.target.name} have two"
            )

    def _reject(
        self, writer: Session, reader: Session, dropped: Sequence[Drafted], verdict: Verdict, out: Transcript
    ) -> Segment:
        if not dropped:
            return super()._reject(writer, reader, dropped, verdict, out)
        draft = [t for d in dropped for t in d.segment.tokens]
        writer.rollback(sum(len(d.step.tokens) for d in dropped))
        rejected = RejectedLookup(draft, self.ngram, self.length)
        drafts = Drafts(writer, self.drafted, out) if self.drafted else None
        prompt = reader.tokens[: -len(draft) - len(out.tokens)]
        otherwise = drafts or PromptLookup(prompt, self.ngram, self.length, self.setup.max_tokens)

        def propose(answer: Sequence[int]) -> Proposal:
            found = rejected(answer)
            return found if found.tokens else otherwise(answer)

        step = reader.rewrite(len(draft), self.setup.step_ends, out.sampling(), out.step_limit(self.target), propose)
        out.wrote(step, rejected_text=dropped[0].step.text, read_before=len(draft), **asdict(verdict))
        if drafts:  # it has read a part of the step, proposing
            return Segment(step.text, step.eos, drafts.unread(out.tokens))
        return segment(step, self.target, self.draft)

"""Decoding methods on scripted models: what is kept, what is rewritten, and that the numbers add up."""

from __future__ import annotations

import dataclasses
import io
import itertools
import json
from pathlib import Path

import numpy as np
import pytest
from fakes import FakeEngine, FakeSession, ScriptedProbe, blank_line
from rich.console import Console
from tiny import tiny_engine

from semspec import decoding, rules
from semspec.config import validate
from semspec.decoding.acceptance import Judge
from semspec.decoding.base import Answer, Setup, TraceStep, Transcript, registry
from semspec.decoding.draft import Draft
from semspec.decoding.reward_guided import RewardGuided
from semspec.decoding.semantic import Semantic
from semspec.decoding.semantic_hybrid import SemanticHybrid
from semspec.decoding.semantic_random import Chance, SemanticRandom
from semspec.decoding.specreason import PromptedScorer, SpecReason
from semspec.decoding.speculative_thinking import SpeculativeThinking, mood
from semspec.decoding.target import Target
from semspec.engine.base import Sampling, Step, segment
from semspec.engine.statistics import Tokens
from semspec.errors import UserError
from semspec.files import write_json
from semspec.schema import Decide, Settings
from semspec.solve import View, solve

DRAFT = ("one dog.\n\n", "two cats.\n\n", "three.\n\n", "so six")
TARGET = ("One hen.\n\n", "Two oxen here.\n\n", "Thrice.\n\n", "Thus 6")
YES, NO = 1.0, 0.0  # p of a draft step that is surely kept, surely rejected (q = 1)


def engines(chars: tuple[int, int] = (1, 1), draft=DRAFT, target=TARGET) -> tuple[FakeEngine, FakeEngine]:
    return FakeEngine("draft", draft, chars[0]), FakeEngine("target", target, chars[1])


def setup(max_tokens: int = 1000, max_step: int = 100, temperature: float = 0.0) -> Setup:
    return Setup("sys", blank_line, max_step, max_tokens, temperature)


def semantic(
    p: tuple[float, ...], q: tuple[float, ...] = (1.0,), gamma: int = 1, pair=None, **rules
) -> tuple[Semantic, FakeEngine, FakeEngine]:
    draft, target = pair or engines()
    return Semantic(setup(**rules), draft, target, Judge(ScriptedProbe(*q), ScriptedProbe(*p)), gamma), draft, target


def check(answer: Answer) -> None:
    """The equations between an answer's numbers."""
    trace = answer.trace
    assert answer.draft_tokens + answer.target_tokens == answer.output_tokens
    assert answer.output_tokens == sum(s.n_tokens for s in trace)
    assert answer.offered == answer.accepted + sum(s.accepted is False for s in trace)
    assert answer.discarded_tokens == sum(s.rejected_tokens for s in trace)
    assert answer.accepted_tokens <= answer.verifier_tokens
    assert answer.text == "".join(s.text for s in trace)
    assert answer.seconds == pytest.approx(sum(s.seconds for s in trace))


def untimed(answer: Answer) -> Answer:
    trace = tuple(dataclasses.replace(s, seconds=0.0) for s in answer.trace)
    return dataclasses.replace(answer, trace=trace, seconds=0.0, phases={})


def test_target_writes_its_script_in_steps():
    """The target's trace is its steps, all its own, and EOS counts as one token."""
    _, engine = engines()
    answer = Target(setup(), engine).answer("?")
    check(answer)
    assert [s.text for s in answer.trace] == list(TARGET)
    assert answer.finish_reason == "eos"
    assert answer.output_tokens == answer.target_tokens == len("".join(TARGET)) + 1
    assert (answer.offered, answer.verifications, answer.discarded_tokens) == (0, 0, 0)


def test_plain_decoding_reads_nothing_and_writes_each_token_once():
    """Cutting plain decoding into steps adds no model pass."""
    _, engine = engines()
    answer = Target(setup(), engine).answer("?")
    (session,) = engine.sessions
    assert {kind for kind, _ in session.calls} == {"generate"}
    assert sum(n for _, n in session.calls) == answer.output_tokens


def test_steps_do_not_change_what_plain_decoding_writes():
    """A small step limit cuts the trace, not the text; the cut steps are marked."""
    _, engine = engines()
    whole, cut = Target(setup(), engine).answer("?"), Target(setup(max_step=4), engine).answer("?")
    check(cut)
    assert cut.text == whole.text
    assert [s.truncated for s in cut.trace][:3] == [True, True, False]
    assert max(s.n_tokens for s in cut.trace) == 4


@pytest.mark.parametrize("budget", [1, 2, 9, 10, 11, 12, 40, 41, 42])
def test_every_method_stops_at_the_budget(budget: int):
    """No method writes more than max_tokens, and only an EOS within it finishes the answer."""
    for chars in ((1, 1), (2, 1), (1, 2)):
        draft, target = engines(chars)
        rules = setup(max_tokens=budget)
        methods = [Target(rules, target), Draft(rules, draft, target)]
        for gamma, p in itertools.product((1, 2, 3), (YES, NO)):
            methods.append(Semantic(rules, draft, target, Judge(ScriptedProbe(1.0), ScriptedProbe(p)), gamma))
            methods.append(SemanticHybrid(rules, draft, target, Judge(ScriptedProbe(1.0), ScriptedProbe(p)), gamma))
        target.marks = [9, 2, 8, 0] * 50
        methods += [
            SpecReason(rules, draft, target, PromptedScorer(target), 7 / 9),
            RewardGuided(rules, draft, target),
            SpeculativeThinking(rules, draft, target, first_tokens=3),
        ]
        for method in methods:
            answer = method.answer("?")
            check(answer)
            assert answer.output_tokens <= budget
            if answer.finish_reason == "length":
                assert answer.output_tokens == budget


def test_specreason_keeps_good_marks_and_rewrites_bad_ones():
    """Marks from 7 on keep the step, others have it rewritten; the question is read each time and taken back."""
    draft, target = engines()
    target.marks = [9, 3, 7, 6]
    scorer = PromptedScorer(target)
    answer = SpecReason(setup(), draft, target, scorer, 7 / 9).answer("?")
    check(answer)
    judged = [s for s in answer.trace if s.score is not None]
    assert [(round(9 * s.score), s.accepted) for s in judged] == [(9, True), (3, False), (7, True), (6, False)]
    assert [s.author for s in answer.trace] == ["draft", "target", "draft", "target"]
    offered = sum(s.rejected_tokens if s.accepted is False else s.n_tokens for s in judged)
    assert answer.verifier_tokens == offered + 4 * len(scorer.question)
    assert target.sessions[-1].answer == answer.text


def test_the_first_steps_can_be_the_targets():
    """`first_steps` steps are written by the target without a draft."""
    draft, target = engines()
    target.marks = [9] * 9
    answer = SpecReason(setup(), draft, target, PromptedScorer(target), 7 / 9, first_steps=2).answer("?")
    check(answer)
    assert [s.author for s in answer.trace][:3] == ["target", "target", "draft"]


@pytest.mark.parametrize(("scoring", "mark"), [("greedy", 0.0), ("average", 6.0)])
def test_marks_greedy_and_average(scoring: str, mark: float):
    """A likeliest token that is no digit counts 0; the mean is over the digits alone."""
    _, target = engines()
    assert PromptedScorer(target, scoring)._mark([(None, 0.5), (8, 0.25), (4, 0.25)]) == pytest.approx(mark)


def test_moods():
    """The words that occur most decide; ties are negative; no word is neutral."""
    assert mood("So 3 + 4 = 7.") == "neutral"
    assert mood("Yes, I am confident.") == "positive"
    assert mood("Wait, or alternatively ...") == "negative"
    assert mood("Let me verify and check.") == "verify"
    assert mood("Yes. Wait.") == "negative"


def test_speculative_thinking_takes_over_where_the_draft_doubts():
    """Neutral steps stay the draft's, and looking ahead changes nothing; a doubt hands over to the target."""
    calm, target = engines()
    plain = Draft(setup(), *engines()).answer("?")
    answer = SpeculativeThinking(setup(), calm, target).answer("?")
    assert (answer.text, answer.target_tokens, answer.discarded_tokens) == (plain.text, 0, 0)
    draft, target = engines(draft=("one dog.\n\n", "wait, two cats.\n\n", "three.\n\n", "so six"))
    answer = SpeculativeThinking(setup(), draft, target).answer("?")
    assert [s.author for s in answer.trace][:2] == ["draft", "target"]
    assert answer.discarded_tokens == 20 and answer.target_tokens >= 20
    assert answer.text == "".join(s.text for s in answer.trace)


def test_draft_is_counted_in_the_targets_tokens():
    """With another vocabulary, the draft's budget and counts are the target's."""
    draft, target = engines((1, 2))
    answer = Draft(setup(), draft, target).answer("?")
    check(answer)
    assert answer.text == "".join(DRAFT)
    assert answer.output_tokens == sum(len(target.encode(s)) for s in DRAFT) + 1
    short = Draft(setup(max_tokens=7), draft, target).answer("?")
    assert (short.output_tokens, short.finish_reason) == (7, "length")
    assert short.text == "".join(DRAFT)[:14]


@pytest.mark.parametrize("gamma", [1, 2, 3, 9])
@pytest.mark.parametrize("chars", [(1, 1), (2, 1), (1, 2)])
def test_all_accepted_is_the_drafts_answer(gamma: int, chars: tuple[int, int]):
    """When everything is accepted, the answer is plain draft decoding's and the target writes nothing."""
    pair = engines(chars)
    method, _, target = semantic((YES,), gamma=gamma, pair=pair)
    answer = method.answer("?")
    check(answer)
    plain = Draft(setup(), *pair).answer("?")
    assert answer.text == plain.text
    assert answer.output_tokens == plain.output_tokens
    assert (answer.target_tokens, answer.discarded_tokens) == (0, 0)
    assert answer.accepted == answer.offered == 4
    assert answer.verifications == -(-4 // gamma)
    assert {kind for kind, _ in target.sessions[0].calls} == {"read"}
    assert answer.verifier_tokens == answer.output_tokens


@pytest.mark.parametrize("gamma", [1, 2, 3])
@pytest.mark.parametrize("chars", [(1, 1), (2, 1), (1, 2)])
def test_all_rejected_is_the_targets_answer(gamma: int, chars: tuple[int, int]):
    """When the target rejects everything, the answer is greedy target decoding, token for token."""
    pair = engines(chars)
    method, _, target = semantic((NO,), gamma=gamma, pair=pair)
    answer = method.answer("?")
    check(answer)
    plain = Target(setup(), target).answer("?")
    assert target.sessions[0].tokens == target.sessions[1].tokens
    assert (answer.text, answer.output_tokens, answer.draft_tokens) == (plain.text, plain.output_tokens, 0)
    assert (answer.accepted, answer.offered) == (0, 4)


@pytest.mark.parametrize("gamma", [1, 2, 3])
@pytest.mark.parametrize("position", [0, 1, 2, 3])
def test_rejection_at_each_position(gamma: int, position: int):
    """The rejected step alone is the target's, and the drafts behind it are thrown away, unjudged."""
    p = [YES] * 8
    # predictors are called on whole rounds: find the call that judges `position`
    rounds = [list(range(k, min(k + gamma, 4))) for k in range(0, 4, gamma)]
    before = [r for r in rounds if r[0] <= position]
    p[position] = NO
    method, _, _ = semantic(tuple(p), gamma=gamma)
    answer = method.answer("?")
    check(answer)
    expected = [TARGET[i] if i == position else DRAFT[i] for i in range(4)]
    assert [s.text for s in answer.trace] == expected
    assert [s.author for s in answer.trace] == ["target" if i == position else "draft" for i in range(4)]
    rejected = answer.trace[position]
    assert rejected.accepted is False
    assert rejected.rejected_text == DRAFT[position]
    dropped = [DRAFT[i] for i in before[-1] if i >= position]
    eos = int(before[-1][-1] == 3)
    assert answer.discarded_tokens == rejected.rejected_tokens == len("".join(dropped)) + eos
    assert (answer.offered, answer.accepted) == (4, 3)


@pytest.mark.parametrize("gamma", [1, 2, 3])
@pytest.mark.parametrize("chars", [(1, 1), (2, 1), (1, 2)])
@pytest.mark.parametrize("max_step", [3, 100])
def test_sessions_hold_the_same_text(gamma: int, chars: tuple[int, int], max_step: int):
    """Whenever a model writes, both sessions hold the answer so far; the draft, also this round's drafts."""
    for pattern in itertools.product((YES, NO), repeat=4):
        draft, target = engines(chars)
        settled: list[str] = []
        drafted: list[str] = []

        def ready(session, draft=draft, target=target, settled=settled, drafted=drafted) -> None:
            texts = {e.name: e.sessions[0].answer for e in (draft, target)}
            so_far = "".join(settled)
            assert texts["target"] == so_far
            if session.engine is draft:
                assert texts["draft"].startswith(so_far)  # steps of this round may follow
                drafted.append(texts["draft"][len(so_far) :])
            else:
                assert texts["draft"] == so_far

        draft.before_generate = target.before_generate = ready
        p = (*pattern, *pattern, NO)
        method, _, _ = semantic(p, gamma=gamma, pair=(draft, target), max_step=max_step)
        answer = method.answer("?", on_step=lambda s, settled=settled: settled.append(s.text))
        check(answer)
        assert target.sessions[0].answer == answer.text == "".join(settled)
        assert "" in drafted
        assert not any(drafted) or gamma > 1


def test_probes_see_what_a_plain_pass_would_compute():
    """After rollbacks and reads the states are those of the accepted text alone, in both models' views."""
    draft, target = engines()
    q, p = ScriptedProbe(1.0), ScriptedProbe(YES, NO, YES, YES)
    answer = Semantic(setup(), draft, target, Judge(q, p)).answer("?")
    texts = [s.rejected_text or s.text for s in answer.trace]
    for engine, probe in ((draft, q), (target, p)):
        tokens = engine.chat("?", "sys")
        for i, (text, (hidden, logprob)) in enumerate(zip(texts, probe.seen, strict=True)):
            step = engine.encode(text) + ([engine.eos_id] if i == 3 else [])
            states, _ = engine.states([*tokens, *step], len(step))
            np.testing.assert_allclose(hidden, states.mean(axis=0), rtol=1e-5)
            assert logprob[4] == len(step)
            tokens += engine.encode(answer.trace[i].text)


def test_only_the_layers_that_a_probe_reads_are_pooled():
    """Each model pools its own probe's layers for `semantic`, and none for plain decoding."""
    draft, target = engines()
    q, p = ScriptedProbe(1.0, layers=[2, 0]), ScriptedProbe(YES, layers=[])
    Semantic(setup(), draft, target, Judge(q, p)).answer("?")
    assert {h.shape for h, _ in q.seen} == {(2, 4)}
    assert {h.shape for h, _ in p.seen} == {(0, 4)}
    np.testing.assert_array_less(0, [h for h, _ in q.seen])
    Draft(setup(), draft, target).answer("?")
    Target(setup(), target).answer("?")
    assert draft.layers == target.layers == []


def test_one_target_pass_per_round():
    """The target reads a round's drafts at once; the draft catches up in one pass, only before it drafts."""
    method, draft, target = semantic((YES, NO, YES, YES, YES), gamma=2)
    answer = method.answer("?")
    kinds = [kind for kind, _ in target.sessions[0].calls]
    assert kinds == ["read", "rollback", "generate", "read"]
    assert answer.verifications == 2
    assert [kind for kind, _ in draft.sessions[0].calls].count("read") == 1
    last, draft, _ = semantic((YES, YES, YES, NO))
    last.answer("?")
    assert draft.sessions[0].calls[-1][0] == "rollback"  # nothing is read behind the end


@pytest.mark.parametrize("gamma", [1, 2])
def test_eos_alone_is_a_step_like_any_other(gamma: int):
    """A draft step of nothing but EOS is judged: accepted it ends the answer, rejected the target goes on."""
    pair = engines(draft=("one dog.\n\n",), target=("One hen.\n\n", "Two."))
    method, _, _ = semantic((YES,), gamma=gamma, pair=pair)
    answer = method.answer("?")
    check(answer)
    assert [(s.text, s.n_tokens) for s in answer.trace] == [("one dog.\n\n", 10), ("", 1)]
    assert answer.finish_reason == "eos"
    again = engines(draft=pair[0].script, target=pair[1].script)
    method, _, _ = semantic((YES, NO, YES), gamma=gamma, pair=again)
    answer = method.answer("?")
    check(answer)
    assert answer.text == "one dog.\n\nTwo."
    assert answer.trace[1].rejected_text == ""
    assert answer.trace[1].rejected_tokens == 1


def test_eos_at_the_very_first_token():
    """A draft that has nothing to say is judged before anything is written."""
    pair = engines(draft=())
    method, _, _ = semantic((YES,), pair=pair)
    answer = method.answer("?")
    check(answer)
    assert (answer.text, answer.output_tokens, answer.finish_reason) == ("", 1, "eos")
    method, _, _ = semantic((NO,), pair=engines(draft=()))
    assert method.answer("?").text == "".join(TARGET)


def test_a_draft_stops_at_eos_and_at_the_budget():
    """No step is drafted behind EOS, and none past the budget."""
    method, draft, _ = semantic((YES,), gamma=9)
    method.answer("?")
    assert len(draft.sessions[0].calls) == 4
    method, draft, _ = semantic((YES,), gamma=9, max_tokens=12)
    answer = method.answer("?")
    check(answer)
    assert draft.sessions[0].calls == [("generate", 10), ("generate", 2)]
    assert answer.text == "".join(DRAFT)[:12]
    assert answer.trace[-1].truncated


def test_past_the_budget_in_another_vocabulary():
    """A draft whose text is too long in the target's tokens is cut, and what is cut counts as discarded."""
    pair = engines((2, 1))
    method, _, _ = semantic((YES,), pair=pair, max_tokens=12)
    answer = method.answer("?")
    check(answer)
    assert answer.text == "".join(DRAFT)[:12]
    assert (answer.output_tokens, answer.discarded_tokens, answer.finish_reason) == (12, 9, "length")
    assert answer.trace[-1].rejected_text is None


def test_eos_past_the_budget_does_not_finish():
    """An EOS that would be the token after the last is cut with it."""
    n = len("".join(TARGET))
    _, target = engines()
    assert Target(setup(max_tokens=n), target).answer("?").finish_reason == "length"
    assert Target(setup(max_tokens=n + 1), target).answer("?").finish_reason == "eos"


def test_text_without_target_tokens_is_left_to_the_target():
    """A draft that emits only control tokens neither crashes nor loops: the target writes."""
    draft, target = engines((2, 1))
    empty = Step([7], "", Tokens(*np.zeros((4, 1))), np.zeros((3, 4)), "length")

    class Mute(FakeSession):
        def generate(self, step_ends, sampling, max_tokens) -> Step:
            self.tokens.append(7)
            return empty

    draft.session = lambda prompt: Mute(draft, prompt)  # type: ignore[method-assign]
    answer = Semantic(setup(), draft, target, Judge(ScriptedProbe(1.0), ScriptedProbe(YES))).answer("?")
    check(answer)
    assert answer.text == "".join(TARGET)
    assert (answer.offered, answer.verifications) == (0, 0)
    assert Draft(setup(), draft, target).answer("?").output_tokens == 0


def test_a_target_step_without_text_does_not_reach_the_draft():
    """Control tokens of the target's that have no text in another vocabulary are not handed over."""
    draft, target = engines((2, 1))

    class Stutter(FakeSession):
        def generate(self, step_ends, sampling, max_tokens) -> Step:
            if self.tokens[-1] == 7:
                return super().generate(step_ends, sampling, max_tokens)
            self.tokens.append(7)
            return Step([7], "", Tokens(*np.zeros((4, 1))), np.zeros((3, 4)), "length")

    target.session = lambda prompt: Stutter(target, prompt)  # type: ignore[method-assign]
    answer = Semantic(setup(), draft, target, Judge(ScriptedProbe(1.0), ScriptedProbe(NO, YES))).answer("?")
    check(answer)
    assert answer.text == "".join(DRAFT)
    assert answer.target_tokens == 1


def test_same_seed_same_answer():
    """At p / q = 1/2 and sampled text the seed decides everything, and nothing else does."""
    script = tuple(tuple(f"{w} {k}.\n\n" for w in ("a", "b", "c", "d")) for k in range(6))

    def answer(seed: int) -> Answer:
        pair = engines(draft=script, target=script)
        method, _, _ = semantic((0.4,), (0.8,), pair=pair, temperature=1.0)
        return untimed(method.answer("?", seed))

    answers = [answer(s) for s in range(8)]
    assert answers == [answer(s) for s in range(8)]
    assert len({a.text for a in answers}) > 4


def test_acceptance_rate_follows_the_rule():
    """Steps are kept with probability min(1, p / q), and the uniform number in the trace decides."""
    draft = tuple(f"{k}\n\n" for k in range(40))
    steps = []
    for seed in range(8):
        pair = engines(draft=draft, target=draft)
        steps += semantic((0.3,), (0.75,), pair=pair, max_tokens=10_000)[0].answer("?", seed).trace
    assert all(s.accepted == (s.u < 0.4) for s in steps)
    assert np.mean([s.accepted for s in steps]) == pytest.approx(0.4, abs=0.07)


@pytest.mark.parametrize(
    ("p", "q", "expected"),
    [(0.5, 0.5, 1.0), (0.9, 0.3, 1.0), (0.2, 0.8, 0.25), (0.0, 0.5, 0.0), (0.0, 0.0, 1.0)],
)
def test_ratio(p: float, q: float, expected: float):
    """min(1, p / q), defined at q = 0."""
    assert rules.ratio([p], [q]) == pytest.approx([expected])


def test_acceptance_bias_and_threshold():
    """The bias multiplies the score's odds of being kept; a threshold leaves nothing to chance; no number, no step."""
    score = np.array([0.0, 0.2, 0.5, 1.0, np.nan])
    assert rules.acceptance(score).tolist() == [0.0, 0.2, 0.5, 1.0, 0.0]
    assert rules.acceptance(score, bias=np.log(2)) == pytest.approx([0.0, 0.4, 1.0, 1.0, 0.0])
    assert rules.acceptance(score, threshold=0.5).tolist() == [0.0, 0.0, 1.0, 1.0, 0.0]
    assert rules.acceptance(score, bias=-1.0, threshold=0.5).tolist() == [0.0, 0.0, 0.0, 0.0, 0.0]


class FarProbe(ScriptedProbe):
    """A probe to which every other state is unfamiliar."""

    def far(self, hidden):
        return np.arange(len(self.seen) - len(hidden), len(self.seen)) % 2 == 1


def test_unfamiliar_states_are_flagged_or_handed_to_the_target():
    """`far: flag` marks the step in the trace and keeps it, `reject` has the target write it."""
    for far, kept in (("flag", {True}), ("reject", {True, False})):
        judge = Judge(ScriptedProbe(1.0), FarProbe(1.0), None, Decide(far=far))
        judged = [s for s in Semantic(setup(), *engines(), judge).answer("?").trace if s.accepted is not None]
        assert [s.far for s in judged][:2] == [False, True]
        assert {s.accepted for s in judged} == kept
        assert all(s.accepted != s.far for s in judged) or far == "flag"


class ScriptedJoint:
    """A joint predictor that says 1 and 0 in turn, and remembers the views it was given."""

    def __init__(self):
        self.views = []

    def predict(self, views):
        self.views.append(views)
        return np.array([float(len(self.views) % 2)])


def test_rules_decide_by_their_own_score():
    """`p` keeps by p alone, `joint` by what the joint predictor says of both views, `threshold` draws no lots."""

    def verdicts(decide: Decide, joint=None):
        judge = Judge(ScriptedProbe(0.4, layers=[0]), ScriptedProbe(0.6, layers=[1, 2]), joint, decide)
        return [s for s in Semantic(setup(), *engines(), judge).answer("?").trace if s.accepted is not None]

    assert {s.a for s in verdicts(Decide(rule="p"))} == {0.6}
    assert {s.a for s in verdicts(Decide(rule="ratio"))} == {1.0}
    assert all(s.accepted for s in verdicts(Decide(rule="p", threshold=0.6)))
    assert not any(s.accepted for s in verdicts(Decide(rule="p", threshold=0.61)))
    joint = ScriptedJoint()
    kept = [s.accepted for s in verdicts(Decide(rule="joint"), joint)]
    assert kept == [i % 2 == 0 for i in range(len(kept))] and len(kept) > 1
    assert joint.views[0]["draft"][0].shape[1] == 1 and joint.views[0]["target"][0].shape[1] == 2
    with pytest.raises(ValueError, match="joint"):
        Judge(ScriptedProbe(1.0), ScriptedProbe(1.0), None, Decide(rule="joint"))


def test_a_probe_without_an_answer_rejects():
    """Not-a-number from a probe never lets a draft step through."""
    method, _, _ = semantic((float("nan"),))
    assert method.answer("?").text == "".join(TARGET)


def test_on_step_sees_the_trace_as_it_grows():
    """Steps are reported in order, once settled, as they stand in the answer."""
    seen: list[TraceStep] = []
    method, _, _ = semantic((YES, NO, YES, YES))
    assert method.answer("?", on_step=seen.append).trace == tuple(seen)


def test_every_piece_has_its_own_random_numbers():
    """Two steps of one answer never share a sampling seed; two answers with one seed share all."""
    _, target = engines()
    a, b = (Transcript(setup(temperature=0.7), target, seed=3) for _ in range(2))
    first: list[Sampling] = [a.sampling() for _ in range(50)]
    assert len({s.seed for s in first}) == 50
    assert first == [b.sampling() for _ in range(50)]


def test_segment_carries_the_readers_tokens():
    """Tokens pass as they are in one vocabulary, else are encoded anew; EOS becomes the reader's."""
    same, other = FakeEngine("a", DRAFT), FakeEngine("b", DRAFT, chars=2)
    step = Step([*same.encode("abc"), same.eos_id], "abc", Tokens(*np.zeros((4, 4))), np.zeros((3, 4)), "eos")
    assert segment(step, same, same).tokens == step.tokens
    assert segment(step, same, other).tokens == [*other.encode("abc"), other.eos_id]


def test_a_name_registers_once():
    """The registry rejects duplicates and cannot be changed."""
    factory = decoding.METHODS["target"]
    with pytest.raises(ValueError, match="twice: a"):
        registry(("a", factory), ("b", factory), ("a", factory))
    with pytest.raises(TypeError):
        decoding.METHODS["new"] = factory  # type: ignore[index]


@pytest.mark.parametrize("merges", [False, True], ids=["one vocabulary", "two vocabularies"])
def test_on_real_sessions(merges: bool):
    """With real caches too: rejecting all is greedy target decoding, accepting all the draft's."""
    draft, target = tiny_engine(seed=1, merges=merges), tiny_engine(seed=2)
    rules = Setup("s", lambda text, upcoming: len(text) >= 5, 7, 16)
    plain = {NO: Target(rules, target).answer("hi"), YES: Draft(rules, draft, target).answer("hi")}
    for p, expected in plain.items():
        q_probe, p_probe = ScriptedProbe(1.0, layers=[0, 2]), ScriptedProbe(p, layers=[1])
        answer = Semantic(rules, draft, target, Judge(q_probe, p_probe), 2).answer("hi")
        assert answer.text == expected.text
        assert (answer.draft_tokens, answer.target_tokens) == (expected.draft_tokens, expected.target_tokens)


# --- through settings, and in the terminal


@pytest.fixture
def settings() -> Settings:
    return validate(
        {
            "models": {"draft": "small", "target": "large", "encoder": "none"},
            "text": {"system": "sys"},
            "bench": {"gamma": 2, "max_tokens": 200},
        }
    )


def test_build_takes_the_rules_from_the_settings(settings: Settings):
    """Every method by name obeys the settings' budget, prompt and splitter."""
    long = tuple(f"Step number {k} is here.\n\n" for k in range(20))
    draft, target = engines(draft=long, target=long)
    own = {"draft": ScriptedProbe(1.0), "target": ScriptedProbe(YES)}
    probes = own | {"semantic_last_hidden": own, "semantic_cross_domain": own}
    for name in decoding.METHODS:
        method = decoding.build(name, settings, draft, target, probes)
        answer = method.answer("?")
        assert method.name == name
        assert (answer.output_tokens, answer.finish_reason) == (200, "length")
        assert [s.text for s in answer.trace[:3]] == list(long[:3])
    assert answer.verifications < len(answer.trace)  # gamma = 2
    assert target.decode(target.sessions[0].tokens).startswith("sys\n?")


def test_build_says_what_is_wrong(settings: Settings):
    """An unknown method and a missing probe are the user's to mend."""
    draft, target = engines()
    with pytest.raises(UserError, match="unknown method 'magic'; known: target, draft, speculative_sampling"):
        decoding.build("magic", settings, draft, target, {})
    with pytest.raises(UserError, match="trained probe: draft; run `semspec run`"):
        decoding.build("semantic", settings, draft, target, {"target": ScriptedProbe(1.0)})


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project folder with (empty) probes, whose engines and probes are scripted."""
    draft, target = engines(target=(*TARGET[:3], "The answer is \\boxed{6}."))
    monkeypatch.setattr("semspec.engine.load", lambda name, *_: {"small": draft, "large": target}[name])
    scripts = {"draft": (1.0,), "target": (YES, YES, YES, NO)}
    monkeypatch.setattr("semspec.probe.Probe.load", lambda folder: ScriptedProbe(*scripts[folder.name]))
    for role, name in (("draft", "small"), ("target", "large")):
        write_json(tmp_path / f"data/models/{role}.json", {"name": name})
        (tmp_path / "data/probes" / role).mkdir(parents=True)
        (tmp_path / "data/probes" / role / "config.json").write_text("{}")
    return tmp_path


def test_a_probe_of_another_model_is_refused(settings: Settings, project: Path):
    """Probes do not carry over: the line names both models."""
    write_json(project / "data/models/target.json", {"name": "huge"})
    with pytest.raises(UserError, match="trained for huge, not large"):
        solve("2 dogs?", settings, project)


def test_other_probes_come_from_their_own_folders(settings: Settings, project: Path, monkeypatch: pytest.MonkeyPatch):
    """The last layer's probes lie beside the project's, another domain's where the setting says, or nowhere."""
    with pytest.raises(UserError, match="last_hidden/draft holds no trained probe"):
        solve("?", settings, project, "semantic_last_hidden")
    with pytest.raises(UserError, match=r"needs baselines\.cross_probes"):
        solve("?", settings, project, "semantic_cross_domain")
    (project / "data/probes").rename(project / "science")
    seen = []
    load = lambda folder: seen.append(folder) or ScriptedProbe(1.0)  # noqa: E731
    monkeypatch.setattr("semspec.probe.Probe.load", load)
    baselines = settings.baselines.model_copy(update={"cross_probes": "science"})
    assert solve("?", settings.model_copy(update={"baselines": baselines}), project, "semantic_cross_domain") == 0
    assert seen == [project / "science/draft", project / "science/target"]


def test_solve_prints_plain_text_without_a_terminal(settings: Settings, project: Path, capsys):
    """Authors, p, q, verdicts, the rejected text, the totals and the boxed answer, and no escape codes."""
    assert solve("?", settings, project, "semantic", as_json=False) == 0
    out = capsys.readouterr().out
    assert "\x1b" not in out
    assert "draft  p 1.00  q 1.00  score 1.00  accepted\none dog.\n" in out
    assert "draft  p 0.00  q 1.00  score 0.00  rejected\nso six\ntarget  instead\nThe answer is \\boxed{6}.\n" in out
    assert "3 of 4 draft steps accepted" in out
    assert "answer: 6\n" in out


def test_solve_prints_one_json_object(settings: Settings, project: Path, capsys):
    """`--json` prints the numbers under the names of results.jsonl, and nothing else."""
    assert solve("?", settings, project, "semantic", as_json=True) == 0
    row = json.loads(capsys.readouterr().out)
    assert (row["answer"], row["method"], row["steps"], row["accepted"]) == ("6", "semantic", 4, 3)
    assert row["output"] == "".join(DRAFT[:3]) + "The answer is \\boxed{6}."
    assert row["trace"][3]["rejected_text"] == "so six"


def test_solve_strikes_a_rejected_draft_through_in_a_terminal():
    """In a terminal the rejected text is struck through, and what a model writes cannot steer it."""
    screen = io.StringIO()
    view = View(Console(file=screen, force_terminal=True, color_system="standard"))
    view.step(TraceStep("target", "new", 3, p=0.1, q=0.9, a=0.11, u=0.5, accepted=False, rejected_text="old \x1b[2J"))
    assert "\x1b[2;9mold" in screen.getvalue()
    assert "\x1b[2J" not in screen.getvalue()


def test_solve_says_what_is_wrong(settings: Settings, tmp_path: Path):
    """No question, no such method, no probes: one line each, before any model is loaded."""
    with pytest.raises(UserError, match="question is empty"):
        solve(" ", settings, tmp_path, "target", as_json=False)
    with pytest.raises(UserError, match="unknown method"):
        solve("?", settings, tmp_path, "magic", as_json=False)
    with pytest.raises(UserError, match="run `semspec run` first"):
        solve("?", settings, tmp_path, "semantic", as_json=False)


def test_judging_by_lot_needs_no_probe_and_keeps_three_in_four():
    """`semantic_random` draws the same for the same step, and min(1, p / q) of uniform numbers is .75 on average."""
    draft, target = engines()
    one, two = (SemanticRandom(setup(), draft, target, Chance()).answer("?", seed=3) for _ in range(2))
    assert [s.p for s in one.trace] == [s.p for s in two.trace] and one.text == two.text
    step = Step([7], "", Tokens(*np.zeros((4, 1))), np.zeros((0, 4)), "length")
    kept = [Chance()([step], [step], str(i), [])[0].a for i in range(4000)]
    assert np.mean(kept) == pytest.approx(0.75, abs=0.02)

"""Decoding methods on scripted models: what is kept, what is rewritten, and that the numbers add up."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from fakes import FakeEngine, ScriptedProbe
from scripted import DRAFT, NO, TARGET, YES, check, engines, setup

from semspec import decoding
from semspec.decoding.acceptance import Judge
from semspec.decoding.base import Transcript, registry
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
            check(answer, looks_ahead=isinstance(method, SpeculativeThinking))
            assert answer.output_tokens <= budget
            if answer.finish_reason == "length":
                assert answer.output_tokens == budget


def test_an_answer_that_the_context_cannot_hold_is_refused():
    """Before a token is written: the prompt and the whole budget must fit into each model's context."""
    draft, target = engines()
    rules = setup(max_tokens=100)
    needed = len(rules.prompt(draft, "?")) + 100
    draft.context = target.context = needed
    assert SemanticRandom(rules, draft, target, Chance()).answer("?").text
    draft.context = needed - 1
    with pytest.raises(UserError, match=f"fit into the {needed - 1} tokens of draft's context; lower max_tokens"):
        SemanticRandom(rules, draft, target, Chance()).answer("?")


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
    """Neutral steps stay the draft's; a doubt hands over to the target. What was looked at and lies behind the step, or
    is not kept at all, is thrown away."""
    calm, target = engines()
    plain = Draft(setup(), *engines()).answer("?")
    answer = SpeculativeThinking(setup(), calm, target).answer("?")
    assert (answer.text, answer.target_tokens, answer.discarded_tokens) == (plain.text, 0, 20 - 11 + 15 - 8)
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


def test_judging_by_lot_needs_no_probe_and_keeps_three_in_four():
    """`semantic_random` draws the same for the same step, and min(1, p / q) of uniform numbers is .75 on average."""
    draft, target = engines()
    one, two = (SemanticRandom(setup(), draft, target, Chance()).answer("?", seed=3) for _ in range(2))
    assert [s.p for s in one.trace] == [s.p for s in two.trace] and one.text == two.text
    step = Step([7], "", Tokens(*np.zeros((4, 1))), np.zeros((0, 4)), "length")
    kept = [Chance()([step], [step], str(i), [])[0].a for i in range(4000)]
    assert np.mean(kept) == pytest.approx(0.75, abs=0.02)

"""`semantic` on scripted models and probes: which steps stay, what the sessions then hold, and EOS and the budget."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from fakes import FakeSession, ScriptedProbe
from scripted import DRAFT, NO, TARGET, YES, check, engines, semantic, setup, untimed
from tiny import tiny_engine

from semspec import rules
from semspec.decoding.acceptance import Judge
from semspec.decoding.base import Answer, Setup, TraceStep, Transcript
from semspec.decoding.draft import Draft
from semspec.decoding.semantic import Semantic
from semspec.decoding.target import Target
from semspec.engine.base import Sampling, Segment, Step, never
from semspec.engine.statistics import NOTHING, Tokens
from semspec.schema import Decide


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


def test_nothing_is_pooled_where_no_probe_looks(monkeypatch):
    """While the target writes no state is summed, and what it wrote the draft follows without being asked about it."""
    seen = set()
    method, draft, target = semantic((YES, NO, YES, NO))
    target.before_generate = lambda session: seen.add(("target writes", len(session.engine.layers)))
    read = FakeSession.read

    def watched(session, segments):
        seen.add((f"{session.engine.name} reads", len(session.engine.layers)))
        return read(session, segments)

    monkeypatch.setattr(FakeSession, "read", watched)
    assert method.answer("?").accepted == 2
    assert seen == {("target writes", 0), ("target reads", 3)}
    assert "follow" in {kind for kind, _ in draft.sessions[0].calls}


def test_pooling_is_a_phase_of_its_own():
    """Its seconds are out of those of the passes that it was part of, and the phases add up as before."""
    out = Transcript(setup(), engines()[1], 0)
    out.phases["verify"] = 2.0
    out.pooled(Step([], "", NOTHING, np.empty((0, 4)), pooling=0.25), "verify")
    assert (out.phases["verify"], out.phases["pool"]) == (1.75, 0.25)
    engine = tiny_engine(seed=3)
    session = engine.session(engine.encode("12+7? "))
    assert 0 < session.generate(never, Sampling(), 4).pooling < 1
    assert 0 < sum(step.pooling for step in session.read([Segment("12"), Segment("3")])) < 1
    engine.observe([])
    assert session.generate(never, Sampling(), 4).pooling == 0


def test_one_target_pass_per_round():
    """The target reads a round's drafts at once; the draft catches up in one pass, only before it drafts."""
    method, draft, target = semantic((YES, NO, YES, YES, YES), gamma=2)
    answer = method.answer("?")
    kinds = [kind for kind, _ in target.sessions[0].calls]
    assert kinds == ["read", "rollback", "generate", "read"]
    assert answer.verifications == 2
    assert [kind for kind, _ in draft.sessions[0].calls].count("follow") == 1
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
        def generate(self, step_ends, sampling, max_tokens, propose=None) -> Step:
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
        def generate(self, step_ends, sampling, max_tokens, propose=None) -> Step:
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

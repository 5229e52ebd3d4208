"""The planner: curves, closed forms against counted simulations, what a bench row predicts, and the verdict."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tiny import tiny_engine

from semspec import cli, config, files
from semspec.decoding import METHODS, wanted
from semspec.errors import UserError
from semspec.planning import command, cost, placements, prediction
from semspec.planning.cost import WIDTHS, Cost, Curve, Prices, measure
from semspec.planning.gain import Pair
from semspec.provenance import place

REPO = Path(__file__).resolve().parents[2]
LINE = Curve((1, 2, 10), (2.0, 2.2, 3.0))  # ten times as cheap to read as to write
DRAFT = Curve((1, 2, 10), (1.0, 1.1, 1.5))
PAIR = Pair(DRAFT, LINE, base=2.0)


def prices(judged, verified=None, followed=None):
    return Prices(judged, verified or judged, followed or verified or judged)


def timed(role="target", engine="transformers int8", curve=LINE, model="m", vocab="v", plain=None, tokens=1):
    return placements.Timed(role, model, engine, prices(curve, plain), 100 * tokens, vocab)


def test_a_curve_goes_straight_between_and_beyond_what_was_measured():
    assert [LINE.at(w) for w in (1, 1.5, 6, 10, 20)] == pytest.approx([2.0, 2.1, 2.6, 3.0, 4.0])
    assert Curve.from_json(json.loads(json.dumps(LINE.to_json()))) == LINE
    assert Curve((1,), (0.5,)).at(50) == 0.5


def test_measured_curves_rise_and_leave_no_session_changed():
    """A wider pass that took less time counts as much as the narrower one; every text ends as the prompt it was."""
    now, model, sessions, ticks = [0.0], tiny_engine(), [], []
    forward, session = model.forward, model.session

    def uneven(ids, *args, **kwargs):
        width = ids.shape[1]
        now[0] += {2: 5.0, 4: 3.0}.get(width, float(width))
        return forward(ids, *args, **kwargs)

    def kept(prompt):
        sessions.append(session(prompt))
        return sessions[-1]

    model.forward, model.session = uneven, kept
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cost, "perf_counter", lambda: now[0])
        found = measure(model, [[1, 2, 3], [4, 5, 6, 7]], lambda: ticks.append(1))
    rising = Curve((1, *WIDTHS), (1.0, 5.0, 5.0, *map(float, WIDTHS[2:])))
    assert found == prices(rising) and len(ticks) == 3
    assert [s.tokens for s in sessions] == [[1, 2, 3], [1, 2, 3], [4, 5, 6, 7]]


def test_each_kind_of_pass_has_a_curve_of_its_own():
    """A model whose passes take a second more for each layer that is pooled, and one for scores, on its own clock."""
    now, model = [0.0], tiny_engine()
    forward = model.forward

    def slow(*args, **kwargs):
        now[0] += 1 + len(model.slots) + (kwargs["logits_to_keep"] > 1)
        return forward(*args, **kwargs)

    model.forward = slow
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cost, "perf_counter", lambda: now[0])
        found = measure(model, [[1, 2, 3]])
    assert found.judged.seconds == (4.0, *[5.0] * len(WIDTHS))
    assert found.verified.seconds == (1.0, *[2.0] * len(WIDTHS)) and set(found.followed.seconds) == {1.0}


def test_passes_are_timed_in_the_middle_of_an_answer(monkeypatch):
    """On a clock that only what lies before a pass moves."""
    now, model = [0.0], tiny_engine()
    session = model.session

    class Slow:
        def __init__(self, prompt):
            self.inner, self.tokens = session(prompt), len(prompt)

        def __getattr__(self, name):
            def call(*args):
                now[0] += len(self.inner.tokens)
                return getattr(self.inner, name)(*args)

            return call

    monkeypatch.setattr(cost, "perf_counter", lambda: now[0])
    monkeypatch.setattr(cost, "WRITTEN", 1)
    monkeypatch.setattr(model, "session", Slow)
    for answer, behind in ((0, 0), (40, 20), (1_000_000, cost.BEHIND)):
        found = measure(model, [[1, 2, 3]], answer=answer)
        assert set(found.judged.seconds + found.verified.seconds + found.followed.seconds) == {3.0 + behind}


def test_what_a_pass_costs_depends_on_what_is_wanted_of_it():
    """The draft writes what is judged and follows the rest; no probe looks at what the target writes."""
    own = Prices(*(Curve((1, 2), (seconds, 10 * seconds)) for seconds in (3.0, 2.0, 1.0)))
    assert [own.of("draft", w).seconds for w in ("judged", "verified", "followed")] == [(3, 10), (1, 10), (1, 10)]
    assert [own.of("target", w).seconds for w in ("judged", "verified", "followed")] == [(1, 30), (1, 20), (1, 10)]
    assert Prices.from_json(json.loads(json.dumps(own.to_json()))) == own


def test_what_each_method_wants():
    found = {name: wanted(name) for name in METHODS}
    judged = {"semantic", "semantic_hybrid", "semantic_cross_domain"}
    assert {n for n, w in found.items() if w == "judged"} == judged
    exact = {"speculative_sampling", "prompt_lookup"}
    assert {n for n, w in found.items() if w == "verified"} == exact | {"semantic_random", "semantic_last_hidden"}


def test_the_bound_is_base_over_writing_and_reading():
    assert PAIR.bound(10) == pytest.approx(2.0 * 10 / (10 * 1.0 + 3.0))
    assert PAIR.semantic(1.0, 10) == pytest.approx(PAIR.bound(10))
    longer = Pair(DRAFT, LINE, base=2.0, rate=1.5)  # a draft that needs more tokens for the same text
    assert longer.bound(10) == pytest.approx(2.0 * 10 / (15 * 1.0 + 3.0))


@pytest.mark.parametrize("gamma", [1, 2, 3])
@pytest.mark.parametrize("kept", [0.0, 0.3, 0.8, 1.0])
def test_the_closed_form_is_the_mean_of_the_loop(gamma, kept):
    """Rounds of `semantic` played with drawn verdicts, their passes counted."""
    rng, length = np.random.default_rng(0), 6
    price, steps, passes = Cost(prices(DRAFT), prices(LINE)), 0, {"draft": Counter(), "target": Counter()}
    for _ in range(8000):
        verdicts = rng.random(gamma) < kept
        good = gamma if verdicts.all() else int(np.argmin(verdicts))
        passes["draft"][1] += gamma * length
        passes["target"][gamma * length] += 1
        if good < gamma:
            passes["target"][1] += length
            passes["draft"][length] += 1
        steps += good + (good < gamma)
    seconds = price.seconds(passes, "judged")
    assert PAIR.semantic(kept, length, gamma) == pytest.approx(steps * length * 2.0 / seconds, rel=0.02)


def test_exact_speculation_by_simulation():
    rng, guesses, kept = np.random.default_rng(1), 4, 0.7
    tokens = seconds = 0.0
    for _ in range(8000):
        verdicts = rng.random(guesses) < kept
        tokens += 1 + (guesses if verdicts.all() else int(np.argmin(verdicts)))
        seconds += guesses * DRAFT.write + LINE.at(guesses + 1)
    assert PAIR.exact(kept, guesses) == pytest.approx(tokens * 2.0 / seconds, rel=0.02)


def test_break_even_is_where_nothing_is_gained():
    even = PAIR.break_even(10)
    assert 0 < even < 1 and PAIR.semantic(even, 10) == pytest.approx(1.0, abs=1e-3)
    assert Pair(LINE, LINE, base=2.0).break_even(10) is None  # the draft is as slow as the target
    assert Pair(DRAFT, LINE, base=50.0).break_even(10) == 0.0


def verdict(found, kept):
    placed = placements.placements(found)
    return command.verdict(found, placed, 10, kept, placed)


def test_a_plan_says_plainly_that_nothing_can_win():
    slow = [timed(), timed("draft", curve=LINE, model="d")]
    said = verdict(slow, 0.9)
    assert said.startswith("No drafting can win here") and "m on transformers int8 alone" in said
    good = [timed(), timed("draft", curve=Curve((1, 10), (0.1, 0.2)), model="d")]
    at_most, expected = (re.search(word + r" (\d+\.\d+)x", verdict(good, 1.0)) for word in ("at most", "expect"))
    assert at_most[1] == expected[1], "with everything kept nothing is above what is said to be the most"
    assert "expect" in verdict(good, 0.8)
    assert "nothing wins" in verdict(good, 0.0)


def test_a_plan_names_exact_speculation_where_it_is_what_wins():
    found = [timed(), timed("draft", curve=Curve((1, 10), (0.4, 0.5)), model="d")]
    placed = placements.placements(found)
    said = [command.verdict(found, placed, 10, kept, placed, 0.8) for kept in (0.0, 1.0)]
    guesses, gain = placed[0].pair("verified").best_guesses(0.8)
    instead = f"Exact speculation gives {gain:.2f}x with {guesses} tokens a proposal."
    assert gain > 1 and said[0].endswith(instead) and "nothing by meaning wins" in said[0]
    assert "expect" in said[1] and instead not in said[1]
    assert command.verdict(found, placed, 10, None, placed, 0.8).endswith(instead), "no bench has kept a step yet"
    dear = [timed(), timed("draft", curve=Curve((1, 10), (1.9, 2.0)), model="d")]  # where probes look on
    cheap = replace(dear[1], prices=replace(dear[1].prices, followed=Curve((1, 10), (0.4, 0.5))))
    placed = placements.placements([dear[0], cheap])
    said = command.verdict([dear[0], cheap], placed, 10, 0.5, placed, 0.8)
    assert said.startswith("No drafting by meaning can win here") and "Exact speculation gives" in said
    other = [found[0], timed("draft", curve=Curve((1, 10), (0.4, 0.5)), model="d", vocab="w")]
    apart = placements.placements(other)
    assert "Exact" not in command.verdict(other, apart, 10, 0.0, apart, 0.8)


def test_every_placement_is_compared_with_the_fastest_target_alone():
    fast = Curve((1, 10), (1.0, 8.0))
    found = [timed(), timed(engine="llamacpp gguf", curve=fast), timed("draft", curve=DRAFT, model="d", vocab="w")]
    placed = placements.placements(found)
    assert {p.pair().base for p in placed} == {1.0} and len(placed) == 2
    assert not placed[0].shares_vocabulary


def test_the_target_alone_and_exact_speculation_pool_nothing():
    """What no probe looks at is not made to wait for states: neither what a gain is measured by, nor token drafts."""
    plain = Curve((1, 10), (0.5, 0.6))
    (placed,) = placements.placements([timed(plain=plain), timed("draft", curve=DRAFT, model="d", plain=plain)])
    draft, target = plain.writing_as(DRAFT), LINE.writing_as(plain)  # probes see what it writes, and what it reads
    assert placed.pair() == Pair(draft, target, base=0.5)
    assert placed.pair("verified") == placed.pair("followed") == Pair(plain, plain, base=0.5)


def bench_rows():
    common = {"phases": {"score": 0.5}, "offered": 4, "accepted": 1, "accepted_tokens": 10, "discarded_tokens": 30}
    common |= {"verifications": 4, "output_tokens": 20}
    exact = {"exact_offered": 0, "exact_accepted": 0}
    return [
        {"method": "target", "passes": {"target": {"1": 3, "10": 1}}, "latency_s": 10.0, **common, **exact},
        {"method": "semantic", "passes": {"target": {"10": 1}, "draft": {"1": 2}}, "latency_s": 5.0, **common, **exact},
    ]


def test_a_bench_is_predicted_from_its_passes():
    half = Curve(LINE.widths, tuple(s / 2 for s in LINE.seconds))
    rows = [*bench_rows(), *(bench_rows()[1] | {"method": m} for m in ("semantic_random@a=1", "semantic_last_hidden"))]
    found = prediction.predicted(rows, Cost(prices(DRAFT, half), prices(LINE, half)))
    assert found["target"] == pytest.approx({"predicted_s": 4.5, "measured_s": 10.0, "ratio": 0.45})
    assert found["semantic"]["predicted_s"] == pytest.approx(3.0 + 2.0 + 0.5)
    assert found["semantic_random@a=1"]["predicted_s"] == pytest.approx(1.5 + 2.0 + 0.5)  # its coin sees no state
    assert found["semantic_last_hidden"] == found["semantic_random@a=1"]


def test_what_was_achieved_is_a_share_of_the_bound():
    rows = bench_rows()  # `semantic` has twice the target's tokens a second
    models = [timed("draft", curve=DRAFT), timed("target")]
    found = {r["method"]: {"predicted_s": 1.0, "measured_s": 1.0, "ratio": 1.0} for r in rows}
    bound = prediction.achieved(rows, models, found)
    assert bound == Pair(DRAFT, LINE, LINE.write).bound(10.0)
    assert found["target"]["gain"] == 1.0 and "of_bound" not in found["target"]
    assert (found["semantic"]["gain"], found["semantic"]["of_bound"]) == (2.0, 2.0 / bound)
    unread = {"method": "speculative_thinking", "offered": 0}  # what the target never reads has another bound
    found["speculative_thinking"] = {}
    prediction.achieved([*rows, rows[1] | unread], models, found)
    assert found.pop("speculative_thinking") == {"gain": 2.0}
    assert f"{200 / bound:.0f}%" in prediction.checked(found, models, bound).markdown()
    twice = [timed("draft", curve=DRAFT, tokens=2), timed("target")]  # its words are half as long
    assert prediction.achieved(rows, twice, found) == Pair(DRAFT, LINE, LINE.write, 2.0).bound(10.0)
    del found["target"]
    assert prediction.achieved(rows, models, found) is None


def test_what_a_bench_has_seen():
    seen = command.Seen.of(bench_rows())
    assert (seen.step, seen.kept, seen.exact) == (10.0, 0.25, None)


def test_what_lies_behind_a_rejection_makes_no_step_longer():
    """Where several are drafted at once, the kept ones alone tell how long a step is."""
    rows = [r | {"verifications": 3, "discarded_tokens": 70} for r in bench_rows()]
    assert command.Seen.of(rows).step == 10.0
    rows = [r | {"accepted": 0, "accepted_tokens": 0} for r in rows]
    assert command.Seen.of(rows).step == command.STEP


def write_bench(folder, rows, **made):
    """A finished bench; made: of its provenance, where it is not that of params.yaml."""
    models = config.load(REPO / "tests/defaults").models
    files.write_jsonl(folder / "results.jsonl", rows)
    made = {"draft": models.draft, "target": models.target} | made
    files.write_json(folder / "summary.json", {"provenance": made})


@pytest.fixture
def planned(tmp_path, monkeypatch):
    """A project whose models are tiny, and timed on little."""
    from semspec import engine

    shutil.copy(REPO / "tests/defaults/params.yaml", tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(engine, "load", lambda name, *_: tiny_engine(seed=len(name)))
    for module in (command, placements):
        monkeypatch.setattr(module, "QUESTIONS", 1)
    monkeypatch.setattr(cost, "WIDTHS", (8, 128))
    monkeypatch.setattr(cost, "WRITTEN", 4)
    monkeypatch.setattr(placements, "can_run", lambda name, settings: settings.kind == "transformers")
    return tmp_path


def test_plan_writes_tables_and_a_picture(planned, capsys):
    assert cli.main(["plan", "--acceptance", "0.6", "--drafts", "org/aa,org/bbb", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [m["model"] for m in found["models"]][1:] == ["org/aa", "org/bbb"] and len(found["placements"]) == 2
    made = {p.name for p in (planned / "results/plan").iterdir()}
    assert {"plan.json", "plan.png", "costs.md", "bounds.csv", "choices.md"} <= made


def test_the_acceptance_is_of_the_newest_bench_of_the_pair(planned, capsys):
    """Another pair's is none, and it counts for its own draft alone; where it comes from is said."""
    target = config.load(REPO / "tests/defaults").models.target
    write_bench(planned / "results/bench", [r | {"accepted": 2} for r in bench_rows()], draft="org/aa", target=target)
    for i, (draft, other) in enumerate([("org/aa", "org/other"), ("org/bbb", target)]):
        write_bench(planned / "results/run", bench_rows(), draft=draft, target=other)
        os.utime(planned / "results/run/summary.json", (2e9 + i,) * 2)
        assert cli.main(["plan", "--drafts", "org/aa,org/bbb", "--json"]) == 0
        found = json.loads(capsys.readouterr().out)
        folder, kept, draft = (("results/bench", 0.5, "org/aa"), ("results/run", 0.25, "org/bbb"))[i]
        assert (found["bench"], found["acceptance"]) == (folder, kept)
        assert [p["draft"] for p in found["placements"] if "speedup" in p] == [draft]
    assert cli.main(["plan", "--drafts", "org/bbb"]) == 0
    assert "counted in results/run, of org/bbb: steps of 10 tokens, 25% of them kept" in capsys.readouterr().out


def test_a_model_that_a_server_runs_is_timed_there_alone(monkeypatch):
    """Its weights are not fetched for the engines of this machine."""
    monkeypatch.setattr(placements, "can_run", lambda name, way: True)
    data = config.load(REPO / "tests/defaults").model_dump()
    data["engine"]["target"] |= {"kind": "sglang"}
    found = placements.candidates(config.validate(data), ["org/draft"])
    assert [(role, way.kind) for role, _, way in found] == [
        ("target", "sglang"), ("draft", "transformers"), ("draft", "llamacpp"),
    ]  # fmt: skip
    assert placements.titled(found[0][2]) == "sglang"


def test_a_model_that_is_none_is_refused_before_anything_is_timed(planned, capsys):
    assert cli.main(["plan", "--drafts", "nope"]) == 2
    assert "unknown model 'nope'" in capsys.readouterr().err and not (planned / "results").exists()


def test_check_needs_counted_passes(planned, capsys):
    files.write_jsonl(planned / "old/results.jsonl", [{"method": "target", "latency_s": 1.0}])
    assert cli.main(["plan", "--check", "old"]) == 2
    assert "before passes were counted" in capsys.readouterr().err
    write_bench(planned / "new", bench_rows())
    assert cli.main(["plan", "--check", "new", "--json"]) == 0
    assert set(json.loads(capsys.readouterr().out)) == {"target", "semantic"}
    assert (planned / "new/prediction.md").exists()


@pytest.mark.parametrize(
    "change",
    [
        *({"passes": passes} for passes in (
            {"target": {"x": 3}}, {"target": {"1.5": 3}}, {"target": {"1": None}}, {"target": {"1": -3}},
            {"target": {"-4": 3}}, {"target": [1]}, [1], {"nobody": {"1": 3}},
        )),
        *({"latency_s": seconds} for seconds in (0, None, "fast", float("nan"))),
        {"phases": None},
    ],
    ids=str,
)  # fmt: skip
def test_rows_that_are_no_answers_are_named_before_a_model_is_loaded(change, planned, capsys, monkeypatch):
    monkeypatch.setattr(prediction, "time_one", lambda *_: pytest.fail("a model was loaded"))
    write_bench(planned / "new", [bench_rows()[0], bench_rows()[1] | change])
    assert cli.main(["plan", "--check", "new"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert f"line 2, {next(iter(change))}" in line


@pytest.mark.parametrize("more", [["--acceptance", "0.5"], ["--drafts", "org/aa"]])
def test_a_check_takes_nothing_that_it_would_not_look_at(more, planned, capsys):
    write_bench(planned / "new", bench_rows())
    assert cli.main(["plan", "--check", "new", *more]) == 2
    assert "leave them out" in capsys.readouterr().err
    assert cli.main(["plan", "--drafts", " ,"]) == 2
    assert "names no model" in capsys.readouterr().err


def test_a_damaged_file_of_costs_is_named(tmp_path):
    for text in ('{"target": {"1": 0.1}, "draft": {"1": 0.1}}', '{"draft": 1, "target": {"judged": {"x": "y"}}}', "{}"):
        (tmp_path / "cost.json").write_text(text)
        with pytest.raises(UserError, match="delete it"):
            Cost.read(tmp_path / "cost.json")


def test_a_bench_of_the_draft_alone_is_predicted(planned, capsys):
    write_bench(planned / "new", [bench_rows()[0] | {"method": "draft", "passes": {"draft": {"1": 3}}}])
    assert cli.main(["plan", "--check", "new", "--json"]) == 0
    assert set(json.loads(capsys.readouterr().out)) == {"draft"}


@pytest.mark.parametrize("change", [{"target": "org/other"}, {"draft_weights": "bf16"}])
def test_a_bench_of_other_models_is_refused(change, planned, capsys):
    """Or of the same in another number format: seconds of both have nothing to do with each other."""
    write_bench(planned / "new", bench_rows(), **change)
    assert cli.main(["plan", "--check", "new", "--set", "engine.weights=int8"]) == 2
    ((name, was),) = change.items()
    assert f"was made with {was} as its {name}, which would be" in capsys.readouterr().err
    bench = bench_rows()[:1]  # who never asked the draft is not asked which one it is
    write_bench(planned / "new", bench, draft="org/other")
    assert cli.main(["plan", "--check", "new"]) == 0


def test_a_bench_with_parameters_of_its_own_takes_no_others(planned, capsys):
    write_bench(planned / "new", bench_rows())
    shutil.copy("params.yaml", planned / "new")
    assert cli.main(["plan", "--check", "new", "--set", "engine.threads=2"]) == 2
    assert "leave out --set" in capsys.readouterr().err


@pytest.mark.parametrize(("change", "layers"), [("train.layers=last", [2]), ("train.features=logprob", [])])
def test_states_are_pooled_of_the_layers_that_the_probes_see(change, layers, planned, monkeypatch):
    seen = []
    curve = Curve((1, 10), (1.0, 2.0))
    monkeypatch.setattr(
        placements, "measure", lambda model, prompts, tick, layers, _: seen.append(layers) or prices(curve)
    )
    assert cli.main(["plan", "--set", change]) == 0
    assert seen == [layers] * 2


def test_a_bench_of_another_machine_is_noted(planned, capsys):
    here = place()
    write_bench(planned / "new", bench_rows(), made_on={here.replace("commit ", "commit 1"): 2})
    assert cli.main(["plan", "--check", "new"]) == 0
    assert "note:" not in capsys.readouterr().err
    write_bench(planned / "new", bench_rows(), made_on={here: 1, "Fast, cores: 9, commit abc": 1})
    assert cli.main(["plan", "--check", "new"]) == 0
    assert "note: new was made on another machine (Fast, cores: 9) than this (" in capsys.readouterr().err


@pytest.mark.parametrize("share", ["1.5", "x", "nan"])
def test_an_acceptance_is_a_share(share, capsys):
    with pytest.raises(SystemExit, match="2"):
        cli.main(["plan", "--acceptance", share])
    assert "is no share" in capsys.readouterr().err

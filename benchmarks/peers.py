"""Every method of a finished comparison against llama.cpp by itself: plain, and with its own draft-model speculation.

    python benchmarks/peers.py [--results FOLDER] [--limit N] [--draft-tokens 3 8] [--table] [--threads N] [--quick]

Takes the problems, prompts, budget and pair of the comparison (greedy ones only) and lets three kinds of decoding take
turns on each problem: the comparison's own `target` once more, on its engine, and llama.cpp's two by the library
xllamacpp. The target is in both runs, and its seconds a token say how much faster this machine is now than it was then,
by which the seconds of the comparison's methods are divided. A killed run goes on where it stopped; `--table` makes the
tables again of a finished one, such as after `semspec plan --check` of the comparison.
"""

from __future__ import annotations

import argparse
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

from common import ROOT, TINY, arguments, out, publish, run, table
from peer import Peer

from semspec import config, decoding, engine, problems
from semspec.bench import runner, summarize
from semspec.decoding import Answer, OnStep, Setup, TraceStep
from semspec.engine.base import Engine
from semspec.errors import UserError
from semspec.files import read_json, read_jsonl, sha256
from semspec.models import gguf
from semspec.provenance import params_sha256
from semspec.schema import Settings

PLAIN = "llama.cpp"
PLACES = ("this run", "the comparison")
COMPARISON = ROOT / "results/published/gsm_symbolic"


class PeerMethod:
    """llama.cpp by itself, as a method of the bench; see `decoding.base.Method`. The tokenizer is the target's."""

    def __init__(self, name: str, setup: Setup, target: Engine, peer: Peer) -> None:
        self.name, self.setup, self.target, self.peer = name, setup, target, peer

    def answer(self, question: str, seed: int = 0, on_step: OnStep | None = None) -> Answer:
        done = self.peer.complete(self.setup.prompt(self.target, question), self.setup.max_tokens)
        n, passes = done.n_tokens, done.n_tokens - done.kept
        proposals = {"exact_offered": done.drafted, "exact_accepted": done.kept}
        step = TraceStep("target", done.text, n, seconds=done.seconds, passes=passes, **proposals)
        if on_step:
            on_step(step)
        ended = "eos" if done.ended else "length"
        return Answer(done.text, ended, (step,), done.seconds, n, n, 0, target_passes=passes, **proposals)


def asked(chosen: argparse.Namespace) -> tuple[Settings, list[problems.Problem], list[dict[str, Any]]]:
    """Settings, problems and rows of the finished comparison; with `--quick` a tiny one that has no rows."""
    if chosen.quick:
        data = config.load(ROOT).model_dump()
        data["models"] |= {"draft": TINY, "target": TINY}
        data["engine"]["kind"] = "llamacpp"
        data["bench"] |= {"max_tokens": 16, "temperature": 0.0}
        return config.validate(data), problems.load("gsm_symbolic", "test", 2, 0), []
    folder: Path = chosen.results
    rows, came = read_jsonl(folder / "results.jsonl"), read_json(folder / "summary.json")["provenance"]
    if not any(row["method"] == "target" for row in rows):
        raise UserError(f"{folder} has no `target`, which links the two runs; run `semspec bench` with it")
    settings = config.load(folder if (folder / "params.yaml").exists() else ROOT)
    if settings.bench.temperature:
        raise UserError("that comparison was sampled; run `semspec bench` with bench.temperature 0")
    if (came["draft"], came["target"]) != (settings.models.draft, settings.models.target):
        raise UserError(f"params.yaml names other models than the comparison's {came['draft']}, {came['target']}")
    if params_sha256(settings) != came["params_sha256"]:
        print("note: params.yaml has changed since that comparison; its engine and budget count", file=sys.stderr)
    found = problems.load(came["dataset"], "test", len({row["id"] for row in rows}), settings.seed, chosen.data_dir)
    if problems.dataset_id(found) != came["dataset_sha256"]:
        raise UserError("params.yaml gives other problems than the comparison had; is it of another run?")
    taken = found[: chosen.limit]
    ids = {str(problem.id) for problem in taken}
    return settings, taken, [row for row in rows if row["id"] in ids]


def slower(rows: list[dict[str, Any]], now: list[dict[str, Any]]) -> float:
    """Seconds of one of the target's tokens in this run, over those in the comparison; says where its text differs."""
    then = {row["id"]: row for row in rows if row["method"] == "target"}
    pairs = [(then[row["id"]], row) for row in now if row["method"] == "target" and row["id"] in then]
    if not pairs:
        return 1.0
    others = sum(a["output"] != b["output"] for a, b in pairs)
    if others:
        print(
            f"note: the target now writes something else in {others} of {len(pairs)} answers; "
            "a comparison made with this version would tell more",
            file=sys.stderr,
        )
    was, is_now = (
        sum(r["latency_s"] for r in part) / sum(r["output_tokens"] for r in part) for part in zip(*pairs, strict=True)
    )
    return is_now / was


def total(rows: list[dict[str, Any]]) -> dict[str, float]:
    """Summed seconds of each method."""
    found: dict[str, float] = {}
    for row in rows:
        found[row["method"]] = found.get(row["method"], 0.0) + row["latency_s"]
    return found


def answering(settings: Settings, draft_tokens: list[int]) -> dict[str, decoding.Method]:
    """The target on its engine, and llama.cpp by itself: plain, and with drafts of so many tokens."""
    way, setup = settings.engine.of("target"), Setup.of(settings)
    target = engine.load(settings.models.target, way)
    files = {role: gguf(getattr(settings.models, role)) for role in ("draft", "target")}
    context = 1024 + settings.bench.max_tokens
    peers = {PLAIN: Peer(files["target"], way.threads, context)}
    for n in draft_tokens:
        peers[f"{PLAIN}, drafts of {n}"] = Peer(files["target"], way.threads, context, files["draft"], n)
    methods: dict[str, decoding.Method] = {"target": decoding.build("target", settings, None, target, {})}
    return methods | {name: PeerMethod(name, setup, target, peer) for name, peer in peers.items()}


def main() -> None:
    args = arguments(__doc__, repeats=1)
    args.add_argument("--results", type=Path, default=COMPARISON, help="folder of a finished comparison")
    args.add_argument("--data-dir", type=Path, help="where the comparison's published set lies, instead of on the hub")
    args.add_argument("--limit", type=int, help="the comparison's first problems only")
    args.add_argument("--draft-tokens", type=int, nargs="+", default=[3, 8], help="3 is the library's own default")
    args.add_argument("--table", action="store_true", help="answer nothing: the tables once more, of what is measured")
    chosen = args.parse_args()
    settings, asked_, rows = asked(chosen)
    data = settings.model_dump()
    data["engine"]["threads"] = chosen.threads or settings.engine.threads
    data["bench"]["repeats"] = chosen.repeats
    settings = config.validate(data)
    version = metadata.version("xllamacpp")
    if not chosen.table:
        runner.run(
            settings,
            answering(settings, chosen.draft_tokens),
            asked_,
            out(chosen) / "peers",
            identity=f"xllamacpp {version}",
        )
    now = read_jsonl(out(chosen) / "peers/results.jsonl")
    seconds = total(now)
    peers = [name for name in seconds if name.startswith(PLAIN)]
    # what a method of the comparison would have taken in this run
    then = total([row for row in rows if row["method"] != "target"])
    factor = slower(rows, now)
    seconds |= {name: s * factor for name, s in then.items()}
    best = min(seconds[name] for name in peers)  # llama.cpp at its best, drafting or not
    found = {name: [PLACES[name in then], s] for name, s in (summarize(rows) | summarize(now)).items()}
    told = chosen.results / "prediction.json"  # by `semspec plan --check`
    predicted = read_json(told) if told.exists() and not chosen.quick else {}
    of_these = predicted.get("answers") == sha256(chosen.results / "results.jsonl") if predicted else False
    shares = predicted["methods"] if of_these else {}
    lines = []
    for name, (where, s) in found.items():
        low, high = s["pass_at_1_ci"]
        exact = s["exact_acceptance_rate"]
        lines.append(
            [
                name,
                where,
                f"{s['pass_at_1']:.0%} [{low:.0%}, {high:.0%}]",
                f"{s['latency_s']:.2f}",
                f"{seconds[PLAIN] / seconds[name]:.2f}x",
                f"{best / seconds[name]:.2f}x",
                f"{share:.0%}" if (share := shares.get(name, {}).get("of_bound")) else "–",
                "–" if exact is None else f"{exact:.0%}",
            ]
        )
    head = [
        "method",
        "measured in",
        "Pass@1",
        "s",
        f"speed over {PLAIN}",
        f"over {PLAIN}'s best",
        "of its bound",
        "exact acceptance",
    ]
    kinds = {role: engine.number_format(settings.engine.of(role)) for role in ("draft", "target")}
    publish(
        chosen,
        "Every method against llama.cpp by itself",
        [table(head, lines)],
        [],
        f"{settings.models.draft} ({kinds['draft']}) -> {settings.models.target} ({kinds['target']}), {len(asked_)} "
        f"problems, greedy, at most {settings.bench.max_tokens} tokens, the same prompts; xllamacpp {version}. Speed "
        "is of summed seconds, those of the comparison's methods brought to this run's speed by `target`'s seconds a "
        f"token, {factor:.2f} times as many now. Of its bound: tokens a second over `target`'s, as a share of the most "
        "that this placement allows (`semspec plan --check` of the whole comparison).",
    )


if __name__ == "__main__":
    run(main)

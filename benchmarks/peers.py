"""Every method of a finished comparison against llama.cpp by itself: plain, and with its own draft-model speculation.

    python benchmarks/peers.py [--results results/bench] [--limit N] [--draft-tokens 3 8] [--threads N] [--quick]

Takes the problems, prompts, budget and pair of the comparison (greedy ones only) and lets three kinds of decoding take
turns on each problem: the comparison's own `target` once more, on its engine, and llama.cpp's two by the library
xllamacpp. The target is in both runs, so `target / method` of the comparison times `llama.cpp / target` of this one is
a method's speed-up over llama.cpp, whatever the machine did in between. A killed run goes on where it stopped.
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
from semspec.files import read_json, read_jsonl
from semspec.models import gguf
from semspec.provenance import params_sha256
from semspec.schema import Settings

PLAIN = "llama.cpp"
PLACES = ("this run", "the comparison")


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
    found = problems.load(came["dataset"], "test", len({row["id"] for row in rows}), settings.seed)
    if problems.dataset_id(found) != came["dataset_sha256"]:
        raise UserError("params.yaml gives other problems than the comparison had; is it of another run?")
    taken = found[: chosen.limit]
    ids = {str(problem.id) for problem in taken}
    return settings, taken, [row for row in rows if row["id"] in ids]


def total(rows: list[dict[str, Any]]) -> dict[str, float]:
    """Summed seconds of each method."""
    found: dict[str, float] = {}
    for row in rows:
        found[row["method"]] = found.get(row["method"], 0.0) + row["latency_s"]
    return found


def main() -> None:
    args = arguments(__doc__, repeats=1)
    args.add_argument("--results", type=Path, default=ROOT / "results/bench", help="folder of a finished comparison")
    args.add_argument("--limit", type=int, help="the comparison's first problems only")
    args.add_argument("--draft-tokens", type=int, nargs="+", default=[3, 8], help="3 is the library's own default")
    chosen = args.parse_args()
    settings, asked_, rows = asked(chosen)
    data = settings.model_dump()
    data["engine"]["threads"] = chosen.threads or settings.engine.threads
    data["bench"]["repeats"] = chosen.repeats
    settings = config.validate(data)
    threads = settings.engine.threads
    target, setup = engine.load(settings.models.target, settings.engine.of("target")), Setup.of(settings)
    files = {role: gguf(getattr(settings.models, role)) for role in ("draft", "target")}
    context = 1024 + settings.bench.max_tokens
    peers = {PLAIN: Peer(files["target"], threads, context)}
    for n in chosen.draft_tokens:
        peers[f"{PLAIN}, drafts of {n}"] = Peer(files["target"], threads, context, files["draft"], n)
    methods: dict[str, decoding.Method] = {"target": decoding.build("target", settings, None, target, {})}
    methods |= {name: PeerMethod(name, setup, target, peer) for name, peer in peers.items()}
    version = metadata.version("xllamacpp")
    runner.run(settings, methods, asked_, out(chosen) / "peers", identity=f"xllamacpp {version}")
    now = read_jsonl(out(chosen) / "peers/results.jsonl")
    seconds = total(now)
    # what a method of the comparison would have taken in this run
    then = total([row for row in rows if row["method"] != "target"])
    seconds |= {name: s / total(rows)["target"] * seconds["target"] for name, s in then.items()}
    best = min(seconds[name] for name in peers)  # llama.cpp at its best, drafting or not
    found = {name: [PLACES[name in then], s] for name, s in (summarize(rows) | summarize(now)).items()}
    told = chosen.results / "prediction.json"  # by `semspec plan --check`
    shares = read_json(told)["methods"] if told.exists() and not chosen.quick else {}
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
        "is of summed seconds; a method of the comparison is compared through `target`, which is in both runs. Of its "
        "bound: tokens a second over `target`'s, as a share of the most that this placement allows (`semspec plan "
        "--check` of the whole comparison).",
    )


if __name__ == "__main__":
    run(main)

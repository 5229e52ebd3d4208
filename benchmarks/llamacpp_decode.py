"""Plain decoding by our llama.cpp engine against the library xllamacpp: the same GGUF file, threads, prompt, tokens.

python benchmarks/llamacpp_decode.py [--models NAME ...] [--tokens 96] [--threads N] [--quick]
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import partial
from statistics import median
from typing import NamedTuple

from common import DRAFT, ROOT, TARGET, TINY, arguments, goal, publish, ratios, run, spread, table, take_turns
from peer import Peer

from semspec import config
from semspec.engine import load
from semspec.engine.base import Engine, Sampling, never
from semspec.models import gguf
from semspec.schema import Engine as EngineSettings

QUESTION = "Explain how to compute the number of days between two dates, with many examples."


class Timed(NamedTuple):
    """Seconds of one decoded token, seconds of all with the prompt, and what was written."""

    token: float
    whole: float
    text: str


def ours(engine: Engine, prompt: Sequence[int], n: int, layers: Sequence[int] | None) -> Timed:
    engine.observe(layers)
    started = time.perf_counter()
    step = engine.session(prompt).generate(never, Sampling(), n)
    return Timed(step.seconds / n, time.perf_counter() - started, step.text)


def theirs(peer: Peer, prompt: Sequence[int], n: int) -> Timed:
    done = peer.complete(prompt, n, ignore_eos=True)
    return Timed(done.token_seconds, done.seconds, done.text)


def main() -> None:
    args = arguments(__doc__)
    args.add_argument("--models", nargs="+", default=[TARGET, DRAFT])
    args.add_argument("--tokens", type=int, default=96)
    chosen = args.parse_args()
    if chosen.quick:
        chosen.models, chosen.tokens, chosen.repeats = [TINY], 16, 2
    system = config.load(ROOT).text.system
    rows, goals = [], []
    for name in chosen.models:
        engine = load(name, EngineSettings(kind="llamacpp", threads=chosen.threads))
        engine.eos_ids = frozenset()  # both sides write all the tokens
        prompt = engine.chat(QUESTION, system)
        found = take_turns(
            {
                "xllamacpp": partial(theirs, Peer(gguf(name), chosen.threads), prompt, chosen.tokens),
                "ours": partial(ours, engine, prompt, chosen.tokens, []),
                "ours, all states": partial(ours, engine, prompt, chosen.tokens, None),
            },
            chosen.repeats,
        )
        peer = found["xllamacpp"]
        for who, timed in found.items():
            same = sum(a == b for a, b in zip(timed[0].text, peer[0].text, strict=False))
            token, whole = ([getattr(t, f) for t in timed] for f in ("token", "whole"))
            speed = ratios([t.token for t in peer], token)
            cells = ["–", "–"] if timed is peer else [spread(speed), spread(ratios([t.whole for t in peer], whole))]
            rows.append([name, who, 1e3 * median(token), median(whole), *cells, f"{same} of {len(peer[0].text)}"])
            if who == "ours":
                goals.append(goal(f"decoding, {name}: ours / xllamacpp", median(speed), at_least=0.95))
    head = ["model", "library", "ms per token", "s with prompt", "speed, decoding", "speed, whole", "same characters"]
    publish(
        chosen,
        "Plain decoding on llama.cpp, against xllamacpp",
        [table(head, rows)],
        goals,
        f"Greedy, a prompt of {len(prompt)} tokens and {chosen.tokens} after it, EOS ignored. The peer's milliseconds "
        "are its own timings; ours are those of writing the step: text, step ends and scores of its tokens included. "
        "`all states`: the states of every layer are pooled meanwhile. Two builds of llama.cpp round differently, so "
        "greedy texts may part.",
    )


if __name__ == "__main__":
    run(main)

"""How fast an engine decodes and reads on this machine, and the bound that follows for a draft/target pair.

    python benchmarks/engine.py [--draft NAME] [--target NAME] [--weights int8 bf16 fp32]

Prints medians of one run: milliseconds per decoded token after 200 tokens of context, per token of a 48-token step that
is read in one pass, and per token and row of a sampled batch of 48. Drafting can gain at most
decode(target) / (decode(draft) + read(target)), reached when every step is accepted.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

import torch

from semspec.engine.base import Sampling, Segment, never
from semspec.engine.transformers import TransformersEngine, load
from semspec.models import ensure
from semspec.provenance import machine


def median_ms(run: Callable[[], None], repeats: int) -> float:
    times = []
    for _ in range(repeats):
        started = time.perf_counter()
        run()
        times.append(1e3 * (time.perf_counter() - started))
    return statistics.median(times)


def measure(engine: TransformersEngine, repeats: int) -> dict[str, float]:
    """Milliseconds per token: `decode`, `read`, `batch`."""
    prompt = engine.encode("A farmer has 12 cows and 7 sheep. " * 40)[:200]
    step = engine.encode("He buys 5 more cows, so he has 12 + 5 = 17 cows in the end, which is more. " * 3)[:48]
    session = engine.session(prompt)
    session.generate(never, Sampling(), 4)  # warm-up

    def decode() -> None:
        session.rollback(len(session.generate(never, Sampling(), 8).tokens))

    def read() -> None:
        session.read([Segment("", tokens=step)])
        session.rollback(len(step))

    out = {"decode": median_ms(decode, repeats) / 8, "read": median_ms(read, repeats) / len(step)}
    both = [  # the difference takes the prompt's own pass out
        median_ms(lambda n=n: engine.sample_many([prompt[:16]], 48, never, Sampling(1.0), n, [0]), 1)  # type: ignore[misc]
        for n in (2, 6)
    ]
    out["batch"] = (both[1] - both[0]) / 4 / 48
    return out


def main() -> None:
    args = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    args.add_argument("--draft", default="qwen2.5-coder-0.5b-instruct")
    args.add_argument("--target", default="qwen2.5-coder-1.5b-instruct")
    args.add_argument("--weights", nargs="+", default=["int8"], choices=["int8", "bf16", "fp32"])
    args.add_argument("--repeats", type=int, default=5)
    chosen = args.parse_args()
    print(machine(), torch.backends.cpu.get_cpu_capability())
    print(f"{'':40}{'decode':>10}{'read':>10}{'batch':>10}   ms per token")
    for weights in chosen.weights:
        found = {}
        for role in ("draft", "target"):
            name = getattr(chosen, role)
            found[role] = measure(load(ensure(name), name, weights=weights), chosen.repeats)
            row = "".join(f"{found[role][k]:10.1f}" for k in ("decode", "read", "batch"))
            print(f"{name + ' ' + weights:40}{row}", flush=True)
        bound = found["target"]["decode"] / (found["draft"]["decode"] + found["target"]["read"])
        print(f"{'bound of the speed-up, ' + weights:40}{bound:10.2f}x")


if __name__ == "__main__":
    main()

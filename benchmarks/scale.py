"""What the paper's full setting costs on n GPUs, and where the time goes: arithmetic on measured costs, no GPU needed.

    python benchmarks/scale.py [--gpu h100|h200] [--layer-ms 0.83] [--read-layer-ms 1.35] [--results FILE] ...

One forward pass over `rows` rows of `tokens` new tokens each takes the longest of three:

    launching   layers * layer_ms                     measured; 0 for an engine with captured graphs
    memory      (weights + rows * context * kv) / (bandwidth * efficiency)
    arithmetic  2 * parameters * rows * tokens / (flops * efficiency)

`layer_ms` is what `benchmarks/engine.py` measures on a GPU: milliseconds per decoded token over the number of layers,
and per token read * 48 over the number of layers. Bandwidth and flops are the vendor's, the efficiencies assumptions.
A GPU holds both models, as the stages do, and the rows whose caches fit beside them. The parts of `sample` and `bench`
share nothing, so n GPUs take 1/n of their time; `contexts` and `cluster` are not divided. Loading the models (minutes)
and training the probes (minutes) are left out.
"""

from __future__ import annotations

import argparse
import json
import math
from dataclasses import dataclass
from pathlib import Path

GPUS = {
    "h100": (80e9, 3.35e12, 989e12),
    "h200": (141e9, 4.8e12, 989e12),
}  # bytes, bytes/s, bf16 flop/s without sparsity
SETS = {  # problems, tokens of an answer: the paper's target tokens/s * latency (R1-32B)
    "MATH-500": (500, 39.2 * 89.9),
    "AIME24": (30, 41.0 * 214.8),
    "AMC23": (40, 34.8 * 154.3),
    "GPQA-D": (198, 40.7 * 170.9),
}


@dataclass
class Model:
    parameters: float
    layers: int
    hidden: int
    kv_heads: int

    @property
    def weights(self) -> float:
        """Bytes in bf16."""
        return 2 * self.parameters

    @property
    def kv(self) -> float:
        """Bytes of cache per token: keys and values of 128 numbers a head."""
        return 2 * 2 * self.layers * self.kv_heads * 128

    @property
    def states(self) -> float:
        """Bytes that are kept of one sample: the pooled state of every layer in fp16."""
        return 2 * self.layers * self.hidden


DRAFT = Model(1.78e9, 28, 1536, 2)  # DeepSeek-R1-Distill-Qwen-1.5B
TARGET = Model(32.8e9, 64, 5120, 8)  # DeepSeek-R1-Distill-Qwen-32B
UNDIVIDED = ("contexts: the target's chains", "cluster: entailment")
NLI_PARAMETERS = 0.75e9  # DeBERTa-xlarge-MNLI


@dataclass
class Machine:
    """A GPU and an engine on it."""

    memory: float
    bandwidth: float
    flops: float
    decode_layer_s: float
    read_layer_s: float

    def seconds(self, model: Model, rows: int, tokens: int, context: float) -> float:
        """One forward pass."""
        launching = model.layers * (self.decode_layer_s if tokens == 1 else self.read_layer_s)
        memory = (model.weights + rows * context * model.kv) / self.bandwidth
        return max(launching, memory, 2 * model.parameters * rows * tokens / self.flops)


def hours(machine: Machine, chosen: argparse.Namespace) -> dict[str, float]:
    """GPU hours of each kind of work."""
    context, step, n = chosen.context_tokens, chosen.step_tokens, chosen.n
    free = machine.memory - TARGET.weights - DRAFT.weights
    rows = min(n, max(1, int(free // ((context + step) * TARGET.kv))))
    batches = chosen.samples / n * math.ceil(n / rows)
    chains = max(1, int(free // (chosen.chain_tokens * TARGET.kv)))  # written at once
    passes = chosen.questions / chains * chosen.chain_tokens
    work = {UNDIVIDED[0]: passes * machine.seconds(TARGET, chains, 1, chosen.chain_tokens / 2)}
    pairs = [("draft", DRAFT, "target", TARGET), ("target", TARGET, "draft", DRAFT)]
    for author, writer, other, reader in pairs:
        prompt = chosen.samples / n * machine.seconds(writer, 1, int(context), context)
        work[f"sample: the {author} writes"] = prompt + batches * step * machine.seconds(writer, rows, 1, context)
        reading = chosen.samples / n * machine.seconds(reader, 1, int(context), context)
        work[f"sample: the {other} reads those"] = reading + batches * machine.seconds(reader, rows, int(step), context)
    comparisons = chosen.samples / n * (2 * n) ** 2 / 2  # both directions of half the pairs of 2n samples
    work[UNDIVIDED[1]] = 2 * NLI_PARAMETERS * comparisons * 2 * step / machine.flops
    answers = {"target": 0.0, "draft": 0.0, "semantic": 0.0}
    for problems, tokens in SETS.values():
        write = {m: machine.seconds(model, 1, 1, tokens / 2) for m, model in (("target", TARGET), ("draft", DRAFT))}
        read = machine.seconds(TARGET, 1, int(step), tokens / 2) / step
        accepted = 1 - chosen.target_ratio  # every token not written by the target was drafted, read and kept
        drafted = accepted / chosen.acceptance
        answers["target"] += problems * tokens * write["target"]
        answers["draft"] += problems * tokens * write["draft"]
        answers["semantic"] += (
            problems * tokens * (drafted * (write["draft"] + read) + chosen.target_ratio * write["target"])
        )
    work |= {f"bench: {method}": seconds for method, seconds in answers.items()}
    return {name: seconds / 3600 for name, seconds in work.items()}


def measured(path: Path) -> dict[str, float]:
    """Tokens of a step, the target's share, share of drafted steps kept: of `semantic` in a results.jsonl."""
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    rows = [row for row in rows if row["method"] == "semantic"]
    total = {k: sum(row[k] for row in rows) for k in ("output_tokens", "target_tokens", "steps", "accepted", "offered")}
    return {
        "step_tokens": total["output_tokens"] / total["steps"],
        "target_ratio": total["target_tokens"] / total["output_tokens"],
        "acceptance": total["accepted"] / total["offered"],
    }


def main() -> None:
    args = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    args.add_argument("--gpu", choices=GPUS, default="h100")
    args.add_argument("--layer-ms", type=float, default=0.83, help="of a decoding pass; measured on an H200")
    args.add_argument("--read-layer-ms", type=float, default=1.35, help="of a reading pass; measured on an H200")
    args.add_argument("--efficiency", type=float, default=0.4, help="of bandwidth and of arithmetic")
    args.add_argument("--samples", type=float, default=400_000, help="of each model")
    args.add_argument("--n", type=int, default=20, help="samples per context")
    args.add_argument("--questions", type=int, default=1000)
    args.add_argument("--chain-tokens", type=float, default=8000, help="of the target's own chain")
    args.add_argument("--context-tokens", type=float, default=4000)
    args.add_argument("--results", type=Path, help="results.jsonl whose `semantic` says the next three")
    args.add_argument("--step-tokens", type=float, default=37)
    args.add_argument(
        "--target-ratio", type=float, default=0.15, help="tokens that the target writes (the paper's .15)"
    )
    args.add_argument("--acceptance", type=float, default=0.8, help="drafted steps that are kept")
    args.add_argument("--workers", type=int, nargs="+", default=[1, 2, 4, 8, 16])
    chosen = args.parse_args()
    if chosen.results:
        vars(chosen).update(measured(chosen.results))
    memory, bandwidth, flops = GPUS[chosen.gpu]
    share = chosen.efficiency
    print(f"{chosen.gpu}, {chosen.samples:,.0f} samples of each model, {chosen.step_tokens:.0f} tokens a step")
    engines = {
        "eager": (chosen.layer_ms / 1e3, chosen.read_layer_ms / 1e3),
        "captured graphs": (0.0, 0.0),
    }
    found = {
        name: hours(Machine(0.92 * memory, share * bandwidth, share * flops, *layer_s), chosen)
        for name, layer_s in engines.items()
    }
    print(f"\n| GPU hours | {' | '.join(found)} |\n|---|{'---|' * len(found)}")
    for name in next(iter(found.values())):
        cells = (f"{work[name]:,.1f} ({work[name] / sum(work.values()):.0%})" for work in found.values())
        print(f"| {name} | {' | '.join(cells)} |")
    print(f"| all | {' | '.join(f'{sum(work.values()):,.0f}' for work in found.values())} |")
    print(f"\n| GPUs | {' | '.join(f'days, {name}' for name in found)} |\n|---|{'---|' * len(found)}")
    for n in chosen.workers:
        days = []
        for work in found.values():
            alone = sum(work[name] for name in UNDIVIDED)
            days.append((alone + (sum(work.values()) - alone) / n) / 24)
        print(f"| {n} | {' | '.join(f'{d:.1f}' for d in days)} |")
    kept = [2 * chosen.samples * model.states / 1e9 for model in (DRAFT, TARGET)]
    print(f"\nhidden states on disk: {kept[0]:.0f} GB of the draft, {kept[1]:.0f} GB of the target")


if __name__ == "__main__":
    main()

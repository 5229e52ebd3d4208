"""Decoding one text by our Hugging Face engine against `model.generate` in bf16, and against the memory's speed.

    python benchmarks/torch_decode.py [--models NAME ...] [--tokens 32] [--threads N] [--quick]

One token reads every weight of a linear layer once, so it takes at least their bytes over what the memory gives. That
is measured in the same rounds, by summing a large tensor.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from statistics import median

import torch
import transformers
from common import DRAFT, ROOT, TARGET, TINY, arguments, goal, publish, ratios, run, seconds, spread, table, take_turns
from torch import nn

from semspec import config
from semspec.engine.base import Sampling, never
from semspec.engine.transformers import TransformersEngine, load
from semspec.models import ensure

QUESTION = "Explain how to compute the number of days between two dates, with many examples."
READ = 1_000_000_000  # bytes


def weights(model: nn.Module, bytes_each: int) -> int:
    """Bytes of all linear layers in a format of so many bytes a number, the output head included."""
    shapes = [m.weight.numel() for m in model.modules() if isinstance(m, nn.Linear)]
    return bytes_each * sum(shapes)


def ours(engine: TransformersEngine, prompt: Sequence[int], n: int, layers: Sequence[int] | None) -> float:
    """Seconds of one token."""
    engine.observe(layers)
    return engine.session(prompt).generate(never, Sampling(), n).seconds / n


def theirs(model: transformers.PreTrainedModel, prompt: Sequence[int], n: int) -> float:
    """Seconds of one token by `generate`: of n + 1 tokens less those of one, which takes the prompt out."""
    ids = torch.tensor([list(prompt)])
    write = lambda n: model.generate(ids, do_sample=False, min_new_tokens=n, max_new_tokens=n)  # noqa: E731
    return (seconds(partial(write, n + 1)) - seconds(partial(write, 1))) / n


def main() -> None:
    args = arguments(__doc__)
    args.add_argument("--models", nargs="+", default=[TARGET, DRAFT])
    args.add_argument("--tokens", type=int, default=32)
    chosen = args.parse_args()
    if chosen.quick:
        chosen.models, chosen.tokens, chosen.repeats = [TINY], 8, 2
    system = config.load(ROOT).text.system
    large = torch.ones(READ // 4)
    rows, goals = [], []
    for name in chosen.models:
        folder = ensure(name)
        engines = {w: load(folder, name, w, "cpu", chosen.threads) for w in ("bf16", "int8")}
        for engine in engines.values():
            engine.eos_ids = frozenset()  # both sides write all the tokens
        model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16).eval()
        prompt, n = engines["bf16"].chat(QUESTION, system), chosen.tokens
        size = {"bf16": weights(model, 2), "int8": weights(model, 1)}
        found = take_turns(
            {
                "memory": partial(seconds, large.sum),
                "generate, bf16": partial(theirs, model, prompt, n),
                **{f"ours, {w}": partial(ours, engine, prompt, n, []) for w, engine in engines.items()},
                "ours, int8, all states": partial(ours, engines["int8"], prompt, n, None),
            },
            chosen.repeats,
        )
        memory = found.pop("memory")
        for who, token in found.items():
            kind = "int8" if "int8" in who else "bf16"
            speed = ratios(found["generate, bf16"], token)
            least = [s * size[kind] / READ for s in memory]
            share = ratios(token, least)
            rows.append([name, who, 1e3 * median(token), spread(speed), 1e3 * median(least), spread(share)])
            if who in ("ours, bf16", "ours, int8"):
                asked = {"bf16": 1.3, "int8": 2.5}[kind]
                goals.append(goal(f"{name}: {who} / generate, bf16", median(speed), at_least=asked))
                goals.append(goal(f"{name}: {who}, times the memory's limit", median(share), at_most=1.5))
        rows.append([name, "memory", "–", "–", f"{READ / median(memory) / 1e9:.1f} GB/s", "–"])
        del engines, engine, model
    head = ["model", "who", "ms per token", "speed", "the memory's limit, ms", "times the limit"]
    publish(
        chosen,
        "Decoding on PyTorch, against `model.generate`",
        [table(head, rows)],
        goals,
        f"Greedy, batch 1, {len(prompt)} tokens of prompt and {chosen.tokens} after it, EOS ignored; the prompt is "
        "left out. `all states`: the states of every layer are pooled meanwhile. The limit counts the weights of "
        "linear layers alone, once for each token, at the speed at which this machine sums a gigabyte.",
    )


if __name__ == "__main__":
    run(main)

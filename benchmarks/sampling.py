"""Sampling next steps in batches over shared prompts (`sample_many`) against a loop over `model.generate`.

    python benchmarks/sampling.py [--model NAME] [--contexts 3] [--n 16] [--tokens 96] [--loop 2] [--at-once] [--quick]

The same contexts, temperature and token limit, and both stop at a blank line. The loop writes one sample after the
other, so a few (`--loop`, of each context) tell what one costs. `--at-once` adds `generate` with all samples of a
context in one call, which reads the prompt once for each: hours on a CPU without bf16. A killed run goes on where it
stopped.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import count
from statistics import median
from time import perf_counter

import torch
import transformers
from common import ROOT, TARGET, TINY, arguments, goal, out, publish, ratios, run, spread, table, take_turns

from semspec import config, problems
from semspec.engine.base import Sampling
from semspec.engine.transformers import TransformersEngine, load
from semspec.models import ensure

Rates = tuple[float, float]  # samples, and tokens, in a second
seeds = count(1)


def blank_line(text: str, upcoming: str) -> bool:
    """Where `generate` stops too; `text.split` would go past a heading."""
    return "\n\n" in text


def ours(engine: TransformersEngine, prompts: Sequence[Sequence[int]], n: int, limit: int, how: Sampling) -> Rates:
    engine.prefixes.clear()  # the prompts' own passes count
    started, seed = perf_counter(), next(seeds)
    found = engine.sample_many(prompts, n, blank_line, how, limit, [seed + i for i in range(len(prompts))])
    taken = perf_counter() - started
    return len(prompts) * n / taken, sum(len(step.tokens) for row in found for step in row) / taken


def generate(
    model: transformers.PreTrainedModel,
    tokenizer: transformers.PreTrainedTokenizerBase,
    prompts: Sequence[Sequence[int]],
    n: int,
    limit: int,
    how: Sampling,
    at_once: int = 1,
) -> Rates:
    """The loop; `at_once`: samples of one call."""
    torch.manual_seed(next(seeds))
    tokens, started = 0, perf_counter()
    for prompt in prompts:
        for _ in range(n // at_once):
            ids = torch.tensor([list(prompt)])
            done = model.generate(
                ids,
                attention_mask=torch.ones_like(ids),
                do_sample=True,
                temperature=how.temperature,
                top_p=how.top_p,
                top_k=how.top_k,
                max_new_tokens=limit,
                num_return_sequences=at_once,
                stop_strings=["\n\n"],
                tokenizer=tokenizer,
                pad_token_id=tokenizer.pad_token_id or tokenizer.eos_token_id,
            )
            written = done[:, len(prompt) :]
            tokens += int((written != (tokenizer.pad_token_id or tokenizer.eos_token_id)).sum())
    taken = perf_counter() - started
    return len(prompts) * (n // at_once) * at_once / taken, tokens / taken


def main() -> None:
    args = arguments(__doc__)
    args.add_argument("--model", default=TARGET)
    args.add_argument("--contexts", type=int, default=3)
    args.add_argument("--n", type=int, default=16, help="samples of each context")
    args.add_argument("--tokens", type=int, default=96, help="longest sample")
    args.add_argument("--loop", type=int, default=2, help="samples of each context that the loop writes in a round")
    args.add_argument("--at-once", action="store_true", help="also `generate` with n samples of a context in a call")
    chosen = args.parse_args()
    if chosen.quick:
        chosen.model, chosen.contexts, chosen.n, chosen.tokens, chosen.loop, chosen.repeats = TINY, 2, 4, 8, 1, 1
    settings = config.load(ROOT)
    how = Sampling(settings.sample.temperature, settings.sample.top_p)
    folder = ensure(chosen.model)
    engines = {kind: load(folder, chosen.model, kind, "cpu", chosen.threads) for kind in ("bf16", "int8")}
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16).eval()
    tokenizer = engines["bf16"].tokenizer
    questions = problems.load("gsm_symbolic", "train", chosen.contexts, 0)
    prompts = [engines["bf16"].chat(p.question, settings.text.system) for p in questions]
    loop = partial(generate, model, tokenizer, prompts)
    runs = {"loop over generate, bf16": partial(loop, chosen.loop, chosen.tokens, how)}
    if chosen.at_once:
        runs[f"generate, {chosen.n} at once, bf16"] = partial(loop, chosen.n, chosen.tokens, how, chosen.n)
    for kind, engine in engines.items():
        runs[f"sample_many, {kind}"] = partial(ours, engine, prompts, chosen.n, chosen.tokens, how)
    found = take_turns(runs, chosen.repeats, out(chosen) / "sampling.rounds.jsonl")
    (naive, *_), rows, goals = found, [], []
    for who, rates in found.items():
        samples, tokens = zip(*rates, strict=True)
        speed = ratios(samples, [s for s, _ in found[naive]])
        per_token = ratios(tokens, [t for _, t in found[naive]])
        rows.append([who, median(samples), spread(speed), median(tokens), spread(per_token)])
        if who.startswith("sample_many"):
            goals.append(goal(f"samples/s, {who} / {naive}", median(speed), at_least=5))
    publish(
        chosen,
        f"Sampling, against a loop over `model.generate`, {chosen.model}",
        [table(["who", "samples/s", "ratio", "tokens/s", "ratio, tokens"], rows)],
        goals,
        f"{chosen.contexts} contexts, {chosen.n} samples of each, at most {chosen.tokens} tokens, temperature "
        f"{how.temperature}. `sample_many` also pools the states of every layer and scores every token, as the stage "
        "`sample` needs it; `generate` does neither.",
    )


if __name__ == "__main__":
    run(main)

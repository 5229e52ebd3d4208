"""What int8 costs in quality: next-token distributions, log-likelihood and Pass@1 against bf16, the same model.

    python benchmarks/int8_quality.py [--model NAME] [--texts 12] [--problems 60] [--threads N] [--quick]

Texts are of two kinds: bf16's own greedy answers to validation questions, and pages of docs/, which neither wrote.
Pass@1 takes long; its answers are kept, and the same command goes on with them. `--problems 0` leaves it out.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from common import ROOT, TARGET, TINY, arguments, goal, out, publish, run, table

from semspec import config, engine, problems
from semspec.bench.statistics import interval
from semspec.engine.base import Sampling, never
from semspec.engine.cache import new_cache
from semspec.engine.transformers import TransformersEngine, load
from semspec.files import digest, read_jsonl
from semspec.models import ensure

ROWS = 12  # answers that are written side by side
CHUNK = 64  # rows of logits compared at a time
KINDS = ("bf16", "int8")
ARITHMETIC = (
    "transformers",
    "batch",
    "cache",
    "half",
    "int8",
    "lean",
    "packed",
    "prepacked",
    "replace",
    "sampling",
)  # of engine/


def logits(model: TransformersEngine, tokens: Sequence[int]) -> torch.Tensor:
    """`[tokens, vocab]`, after each token."""
    return model.forward(torch.tensor([list(tokens)]), new_cache(model.config))[0]


def compare(models: dict[str, TransformersEngine], tokens: Sequence[int], start: int) -> np.ndarray:
    """`[tokens from start on, 4]`: KL(bf16 || int8), same top token, log-likelihood by bf16, by int8; in nats."""
    rows = []
    with torch.inference_mode():
        found = [logits(models[kind], tokens)[start - 1 : -1] for kind in KINDS]
        said = torch.tensor(list(tokens[start:]))
        for i in range(0, len(said), CHUNK):
            p, q = (torch.log_softmax(f[i : i + CHUNK].float(), -1) for f in found)
            at = said[i : i + CHUNK, None]
            kl = (p.exp() * (p - q)).sum(-1)
            same = (p.argmax(-1) == q.argmax(-1)).float()
            rows.append(torch.stack([kl, same, p.gather(1, at)[:, 0], q.gather(1, at)[:, 0]], -1).numpy())
    return np.concatenate(rows)


def answer(model: TransformersEngine, questions: Sequence[str], system: str, max_tokens: int) -> list[str]:
    prompts = [model.chat(q, system) for q in questions]
    steps = model.sample_many(prompts, 1, never, Sampling(), max_tokens, [0] * len(prompts))
    return [step.text for (step,) in steps]


def texts(chosen: argparse.Namespace, models: dict[str, TransformersEngine], system: str) -> list[list[object]]:
    """Rows of the table of distributions."""
    model, questions = models["bf16"], problems.load("gsm_symbolic", "validation", chosen.texts, 0)
    model.observe([])
    parts: dict[str, list[np.ndarray]] = {"bf16's answers": [], "pages of docs/": []}
    said = answer(model, [p.question for p in questions], system, chosen.text_tokens)
    for problem, text in zip(questions, said, strict=True):
        prompt = model.chat(problem.question, system)
        parts["bf16's answers"].append(compare(models, prompt + model.encode(text), len(prompt)))
    for page in sorted((ROOT / "docs").glob("*.md"))[: chosen.texts]:
        tokens = model.encode(page.read_text(encoding="utf-8"))[: 2 * chosen.text_tokens]
        parts["pages of docs/"].append(compare(models, tokens, 1))
    rows: list[list[object]] = []
    for name, found in parts.items():
        kl, same, bf16, int8 = np.concatenate(found).mean(0).tolist()
        rows.append([name, sum(map(len, found)), f"{kl:.4f}", f"{same:.1%}", f"{bf16:.4f}", f"{int8:.4f}"])
    return rows


def answered(path: Path, key: str, model: TransformersEngine, chosen: argparse.Namespace, system: str) -> list[bool]:
    """Whether each test problem was solved; rows of the same `key` that are in the file are not made again."""
    known = {row["id"]: row["correct"] for row in (read_jsonl(path) if path.exists() else []) if row["key"] == key}
    asked = problems.load("gsm_symbolic", "test", chosen.problems, 0)
    todo = [p for p in asked if p.id not in known]
    for i in range(0, len(todo), ROWS):
        part = todo[i : i + ROWS]
        said = answer(model, [p.question for p in part], system, chosen.max_tokens)
        with path.open("a", encoding="utf-8") as file:
            for problem, text in zip(part, said, strict=True):
                right = bool(problems.grade(text, problem.answer).correct)
                known[problem.id] = right
                file.write(json.dumps({"key": key, "id": problem.id, "correct": right, "output": text}) + "\n")
        print(f"{len(known)} of {len(asked)} answered", flush=True)
    return [known[p.id] for p in asked]


def main() -> None:
    args = arguments(__doc__, repeats=1)
    args.add_argument("--model", default=TARGET)
    args.add_argument("--texts", type=int, default=12, help="of each kind")
    args.add_argument("--text-tokens", type=int, default=140)
    args.add_argument("--problems", type=int, default=60)
    args.add_argument("--max-tokens", type=int, default=256, help="of an answer")
    chosen = args.parse_args()
    if chosen.quick:
        chosen.model, chosen.texts, chosen.text_tokens, chosen.problems, chosen.max_tokens = TINY, 1, 16, 2, 16
    folder, system = ensure(chosen.model), config.load(ROOT).text.system
    models = {kind: load(folder, chosen.model, kind, "cpu", chosen.threads) for kind in KINDS}
    distributions = texts(chosen, models, system)
    tables = [
        table(["text", "tokens", "KL, nats", "same top token", "log-likelihood, bf16", "int8"], distributions),
    ]
    goals = []
    if chosen.problems:
        own = (Path(engine.__file__).parent / f"{name}.py" for name in ARITHMETIC)
        source = "".join(p.read_text(encoding="utf-8") for p in own)
        path = out(chosen) / "int8_quality.answers.jsonl"
        path.parent.mkdir(parents=True, exist_ok=True)
        solved = {}
        for kind, model in models.items():
            model.observe([])
            key = digest(json.dumps([chosen.model, kind, chosen.max_tokens, system, source]))
            solved[kind] = np.array(answered(path, key, model, chosen, system), float)
        difference = 100 * (solved["int8"] - solved["bf16"])
        low, high = interval(difference)
        alone = [int((solved[a] > solved[b]).sum()) for a, b in (KINDS, KINDS[::-1])]
        row = [len(difference), *(f"{s.mean():.1%}" for s in solved.values()), f"{low:+.0f} to {high:+.0f}", *alone]
        head = ["problems", "Pass@1, bf16", "int8", "points, 95%", "bf16 alone right", "int8 alone right"]
        tables.append(table(head, [row]))
        goals.append(goal("Pass@1, points that int8 loses", 0.0 - float(difference.mean()), at_most=2))
    publish(
        chosen,
        f"Quality of int8 against bf16, {chosen.model}",
        tables,
        goals,
        "Log-likelihood is the mean of a token's, in nats; KL is KL(bf16 || int8). Answers are greedy, "
        f"{ROWS} written side by side, gsm_symbolic; on bf16's own answers its log-likelihood is the higher one by "
        "construction. The interval of the points is a paired bootstrap over problems.",
    )


if __name__ == "__main__":
    run(main)

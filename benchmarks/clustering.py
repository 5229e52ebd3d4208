"""Clustering samples by meaning against asking the same model about all pairs, one pair at a time.

    python benchmarks/clustering.py [--model NAME] [--contexts 4] [--n 20] [--threads N] [--quick]

The texts are next steps that a model samples here first (not timed). Both entailment models are measured: the sentence
encoder, and a classifier of entailment. The latter is the encoder with a random head, since how fast a model runs does
not depend on its weights; nothing means the same to it, which is the case in which most pairs have to be asked.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from functools import partial
from itertools import combinations
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import torch
from common import DRAFT, ROOT, TINY, arguments, goal, publish, ratios, run, seconds, spread, table, take_turns

from semspec import config, problems
from semspec.engine import cores
from semspec.engine.base import Sampling
from semspec.engine.transformers import load as load_model
from semspec.models import ensure
from semspec.semantics.clustering import cluster
from semspec.semantics.encoders import CosineModel, NliModel
from semspec.semantics.encoders import load as load_encoder
from semspec.semantics.entailment import THRESHOLDS, Cascade
from semspec.semantics.pairs import LABELS
from semspec.text import Splitter

Texts = Sequence[str]
ENTAILMENT = LABELS.index("entailment")
Score = Callable[[str, str], float]


def samples(name: str, contexts: int, n: int, tokens: int, threads: int) -> list[list[str]]:
    """`n` next steps of each context."""
    settings, engine = config.load(ROOT), load_model(ensure(name), name, "int8", "cpu", threads)
    engine.observe([])
    asked = problems.load("gsm_symbolic", "train", contexts, 0)
    prompts = [engine.chat(p.question, settings.text.system) for p in asked]
    how = Sampling(settings.sample.temperature, settings.sample.top_p)
    found = engine.sample_many(prompts, n, Splitter().ends, how, tokens, list(range(contexts)))
    return [[step.text for step in row] for row in found]


def cosine(tokenizer: Any, model: Any, a: str, b: str) -> float:
    batch = tokenizer([a, b], padding=True, return_tensors="pt")
    hidden, mask = model(**batch).last_hidden_state, batch["attention_mask"][..., None]
    pooled = (hidden * mask).sum(1) / mask.sum(1)
    return float(torch.cosine_similarity(pooled[0], pooled[1], dim=0))


def entailment(tokenizer: Any, model: Any, a: str, b: str) -> float:
    inputs = [tokenizer(x, y, return_tensors="pt") for x, y in ((a, b), (b, a))]
    return min(float(model(**each).logits.softmax(-1)[0, ENTAILMENT]) for each in inputs)


@torch.inference_mode()
def all_pairs(score: Score, groups: Sequence[Texts]) -> float:
    """Seconds of asking about each pair."""
    started = perf_counter()
    for texts in groups:
        for a, b in combinations(texts, 2):
            score(a, b)
    return perf_counter() - started


def ours(cascade: Cascade, groups: Sequence[Texts]) -> None:
    """As `labels.make_labels` does it."""
    cascade.prepare([("", text) for texts in groups for text in texts])
    for texts in groups:
        cluster(texts, partial(cascade.same, ""))


def timed(make: Callable[[], CosineModel | NliModel], kind: str, groups: Sequence[Texts]) -> float:
    """Seconds with a model that has been loaded but has seen none of the texts."""
    model = make()
    model.score([("warm", "up")])
    threshold, calculated = THRESHOLDS[kind]
    return seconds(partial(ours, Cascade(True, model, threshold, calculated=calculated), groups))


def main() -> None:
    args = arguments(__doc__)
    args.add_argument("--model", default=DRAFT, help="whose samples are clustered")
    args.add_argument("--contexts", type=int, default=4)
    args.add_argument("--n", type=int, default=20, help="samples of each context")
    args.add_argument("--tokens", type=int, default=96, help="longest sample")
    chosen = args.parse_args()
    if chosen.quick:
        chosen.model, chosen.contexts, chosen.n, chosen.tokens, chosen.repeats = TINY, 1, 6, 24, 1
    torch.set_num_threads(chosen.threads or cores())
    groups = samples(chosen.model, chosen.contexts, chosen.n, chosen.tokens, chosen.threads)
    encoder = ensure(config.load(ROOT).models.encoder)
    with tempfile.TemporaryDirectory() as folder:
        labels = {"num_labels": len(LABELS), "id2label": dict(enumerate(LABELS))}
        tokenizer, classifier, _ = load_encoder("AutoModelForSequenceClassification", encoder, **labels)
        classifier.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
        _, sentences, _ = load_encoder("AutoModel", encoder)
        found = take_turns(
            {
                "cosine, all pairs": partial(all_pairs, partial(cosine, tokenizer, sentences), groups),
                "cosine, ours": partial(timed, partial(CosineModel, encoder), "cosine", groups),
                "nli, all pairs": partial(all_pairs, partial(entailment, tokenizer, classifier), groups),
                "nli, ours": partial(timed, partial(NliModel, Path(folder)), "nli", groups),
            },
            chosen.repeats,
        )
    pairs, rows, goals = sum(len(g) * (len(g) - 1) // 2 for g in groups), [], []
    for kind in THRESHOLDS:
        naive, own = found[f"{kind}, all pairs"], found[f"{kind}, ours"]
        speed = ratios(naive, own)
        rows += [[kind, "all pairs, one at a time", pairs / median(naive), "–"]]
        rows += [[kind, "ours", pairs / median(own), spread(speed)]]
        goals.append(goal(f"pairs/s, {kind}: ours / all pairs", median(speed), at_least=3))
    alike = len({t for g in groups for t in g})
    publish(
        chosen,
        "Clustering by meaning, against all pairs",
        [table(["entailment", "who", "pairs/s", "ratio"], rows)],
        goals,
        f"{chosen.contexts} contexts of {chosen.n} samples ({alike} different texts) of {chosen.model}; {pairs} pairs "
        "are decided, whether they had to be asked about or not. Ours is the product's: identical texts and the "
        "mathematics gate first, one representative of each cluster, batches of equal length.",
    )


if __name__ == "__main__":
    run(main)

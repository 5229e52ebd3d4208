"""A classifier of entailment made here: a sentence encoder fine-tuned on generated pairs of steps, and calibrated.

The three labels, the frozen embeddings and first layer, and the optimiser's values are the recipe that worked on a
sentence encoder of six layers. What comes out is an ordinary model folder with calibration.json beside the weights:
the thresholds that are best on pairs whose wordings the training never used. It knows nothing of samples or labels.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from semspec.files import save_model, write_json
from semspec.semantics.encoders import NliModel, limit, load
from semspec.semantics.gate import calculates, verdict
from semspec.semantics.normalise import normalise
from semspec.semantics.pairs import LABELS, Pair, pairs

if TYPE_CHECKING:
    from semspec.schema import CrossEncoder

CALIBRATION = "calibration.json"
BATCH = 24  # directed pairs
BUCKET = 16  # batches whose pairs are sorted by length together, so that little is padding
MAX_TOKENS = 192
WEIGHT_DECAY = 0.01
HELD_PAIRS = 600
_FROZEN = re.compile(r"\bembeddings\.|\blayers?\.0\.")  # BERT's names, and those of most encoders after it

Directed = tuple[str, str, int]  # premise, hypothesis, label


def make(
    encoder: Path | str,
    folder: Path,
    settings: CrossEncoder,
    seed: int,
    trust_remote_code: bool = False,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> dict[str, Any]:
    """Fine-tune `encoder` into `folder`, which is there whole or as it was before; returns what calibration.json holds.

    `progress(done, total)` counts training steps. The same arguments give the same weights on the same machine with
    the same number of threads.
    """
    import torch
    import transformers

    transformers.utils.logging.set_verbosity_error()  # that the head is new is no news
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        labels = dict(enumerate(LABELS))
        tokenizer, model, device = load(
            "AutoModelForSequenceClassification",
            encoder,
            trust_remote_code,
            num_labels=len(LABELS),
            id2label=labels,
            label2id={name: i for i, name in labels.items()},
        )
        for done, _ in enumerate(_train(tokenizer, model, device, settings, seed), 1):
            progress(done, settings.steps)
    staging = folder.with_name(f".{folder.name}.partial")
    shutil.rmtree(staging, ignore_errors=True)
    save_model(model, tokenizer, staging)
    found = calibrate(NliModel(staging, MAX_TOKENS, trust_remote_code, strict=False, plain=True), seed)
    write_json(staging / CALIBRATION, found)
    shutil.rmtree(folder, ignore_errors=True)
    staging.rename(folder)
    return found


def directed(made: Sequence[Pair]) -> list[Directed]:
    """Both directions of each pair, normalised."""
    out: list[Directed] = []
    for pair in made:
        a, b = normalise(pair.first), normalise(pair.second)
        out += [(a, b, pair.forward), (b, a, pair.backward)]
    return out


def _batches(rows: Sequence[Directed], seed: int) -> Iterator[list[Directed]]:
    rng = np.random.default_rng(seed)
    for start in range(0, len(rows), BUCKET * BATCH):
        part = [rows[start + i] for i in rng.permutation(len(rows[start : start + BUCKET * BATCH]))]
        part.sort(key=lambda r: len(r[0]) + len(r[1]))
        firsts = range(0, len(part), BATCH)
        for i in rng.permutation(len(firsts)):
            yield part[firsts[i] : firsts[i] + BATCH]


def _train(tokenizer: Any, model: Any, device: str, settings: CrossEncoder, seed: int) -> Iterator[float]:
    """Train in place; the loss of each step."""
    import torch

    for name, weight in model.named_parameters():
        weight.requires_grad_(not _FROZEN.search(name))
    learned = [w for w in model.parameters() if w.requires_grad]
    optimizer = torch.optim.AdamW(learned, lr=settings.lr, weight_decay=WEIGHT_DECAY)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda i: 1 - i / settings.steps)
    most = limit(tokenizer, model, MAX_TOKENS)
    rows = directed(pairs(settings.steps * BATCH // 2, seed))
    model.train()
    for batch in _batches(rows, seed):
        first, second, labels = zip(*batch, strict=True)
        inputs = tokenizer(
            list(first), list(second), truncation=True, max_length=most, padding=True, return_tensors="pt"
        )
        loss = model(**inputs.to(device), labels=torch.tensor(labels, device=device)).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(learned, 1.0)
        optimizer.step()
        optimizer.zero_grad()
        schedule.step()
        yield loss.item()
    model.eval()


def calibrate(model: NliModel, seed: int) -> dict[str, Any]:
    """Thresholds on held-out pairs, and how well they do there.

    threshold: where the gate leaves the decision to the model; calculated: where it found the same mathematics and one
    step calculates; alone: without a gate.
    """
    held = pairs(HELD_PAIRS, seed, held=True)
    scores = np.array(model.score([(p.first, p.second) for p in held]))
    same = np.array([p.same for p in held])
    verdicts = np.array([verdict(p.first, p.second) for p in held])
    done = (verdicts == "same") & np.array([calculates(p.first) or calculates(p.second) for p in held])
    open_ = (verdicts != "different") & ~done
    thresholds = {
        "threshold": best_threshold(scores[open_], same[open_]),
        "calculated": best_threshold(scores[done], same[done]),
        "alone": best_threshold(scores, same),
    }
    gated = open_ & (scores >= thresholds["threshold"]) | done & (scores >= thresholds["calculated"])
    return {
        "thresholds": thresholds,
        "f1": {"gate and model": f1(gated, same), "alone": f1(scores >= thresholds["alone"], same)},
        "pairs": len(held),
    }


def f1(found: np.ndarray, true: np.ndarray) -> float:
    """Of pairs that are said to mean the same; 1 where none is and none should be."""
    said = int(found.sum() + true.sum())
    return 2 * float((found & true).sum()) / said if said else 1.0


def best_threshold(scores: np.ndarray, same: np.ndarray) -> float:
    """The threshold of the highest F1; of several, the middle one."""
    edges = np.unique(np.concatenate([[0.0, 1.0], scores]))
    between = np.unique(np.round((edges[1:] + edges[:-1]) / 2, 4))
    values = np.array([f1(scores >= t, same) for t in between])
    return float(np.median(between[values == values.max()]))

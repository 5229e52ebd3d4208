"""A small project as the stages would leave it, made of seeded random numbers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from semspec.bench.metrics import summarize
from semspec.files import write_json, write_jsonl, write_parquet, write_safetensors
from semspec.report import build
from semspec.schema import Settings

LAYERS, HIDDEN = 3, 8
METHODS = {
    "draft": {"pass_at_1": 0.2, "tps": 30.0, "latency_s": 5.0, "target_ratio": 0.0},
    "semantic": {"pass_at_1": 0.5, "tps": 20.0, "latency_s": 7.25, "target_ratio": None},
}


def settings(**bench: Any) -> Settings:
    """Settings with every default, and a few overrides of `bench`."""
    return Settings.model_validate(
        {
            "models": {"draft": "tiny-draft", "target": "tiny-target", "encoder": "tiny-encoder"},
            "text": {"system": "Solve it."},
            "bench": {"bootstrap": 200, **bench},
        }
    )


def row(problem: int, method: str, **fields: Any) -> dict[str, Any]:
    """One line of results.jsonl with plain values where the test gives none."""
    base = {
        "id": f"p{problem}",
        "problem": problem,
        "repeat": 0,
        "method": method,
        "question": f"Question {problem}?",
        "output": "It is 4.",
        "answer": "4",
        "gold": "4",
        "correct": True,
        "latency_s": 2.0,
        "phases": {"draft": 0.5, "verify": 0.25, "score": 0.01, "write": 1.0},
        "output_tokens": 20,
        "target_tokens": 20,
        "draft_tokens": 0,
        "discarded_tokens": 0,
        "verifier_tokens": 0,
        "offered": 0,
        "accepted": 0,
        "accepted_tokens": 0,
        "verifications": 0,
        "target_passes": 0,
        "exact_offered": 0,
        "exact_accepted": 0,
        "steps": 1,
        "seed": 0,
        "finish_reason": "eos",
        "prompt_sha256": "0" * 64,
        "trace": [step("target", "It is 4.")],
    }
    return base | fields


def step(author: str, text: str, **fields: Any) -> dict[str, Any]:
    """One step of a trace."""
    base = {
        "author": author,
        "text": text,
        "n_tokens": 20,
        "p": None,
        "q": None,
        "a": None,
        "u": None,
        "score": None,
        "far": None,
        "accepted": None,
        "seconds": 0.1,
        "truncated": False,
        "rejected_text": None,
        "rejected_tokens": 0,
    }
    return base | fields


def judged(rng: np.random.Generator, k: int) -> dict[str, Any]:
    """A step of the semantic method: drafted, judged, and rewritten if it was rejected."""
    p, q, u = (float(x) for x in rng.uniform(0.15, 0.95, 3))
    text = f"Step {k}: she has {k} + {k + 1} = {2 * k + 1} marbles in the bag, so that much is left.\n\n"
    if u < min(1, p / q):
        return step("draft", text, p=p, q=q, a=min(1.0, p / q), u=u, accepted=True)
    return step(
        "target",
        text,
        p=p,
        q=q,
        a=min(1.0, p / q),
        u=u,
        accepted=False,
        rejected_text=text.replace("+", "-"),
        rejected_tokens=18,
    )


def rows(problems: int = 12, seed: int = 0) -> list[dict[str, Any]]:
    """Rows of target, draft and semantic, interleaved by problem."""
    rng = np.random.default_rng(seed)
    out = []
    for i in range(problems):
        seconds = float(rng.uniform(8, 14))
        trace = [judged(rng, k) for k in range(1, 7)]
        taken = [s for s in trace if s["accepted"]]
        out += [
            row(
                i,
                "target",
                latency_s=seconds,
                output_tokens=140,
                target_tokens=140,
                correct=bool(rng.random() < 0.8),
            ),
            row(
                i,
                "draft",
                latency_s=seconds / float(rng.uniform(2, 2.6)),
                output_tokens=150,
                target_tokens=0,
                draft_tokens=150,
                correct=bool(rng.random() < 0.4),
                trace=[step("draft", "It is 4.")],
            ),
            row(
                i,
                "semantic",
                latency_s=seconds / float(rng.uniform(1.0, 1.9)),
                output_tokens=120,
                draft_tokens=20 * len(taken),
                target_tokens=120 - 20 * len(taken),
                verifier_tokens=130,
                discarded_tokens=18 * (6 - len(taken)),
                offered=6,
                accepted=len(taken),
                accepted_tokens=20 * len(taken),
                verifications=6,
                target_passes=40,
                exact_offered=30,
                exact_accepted=12,
                steps=6,
                trace=trace,
                correct=bool(rng.random() < 0.7),
            ),
        ]
    return out


def hybrid(answer: dict[str, Any], seconds: float, passes: int, **fields: Any) -> dict[str, Any]:
    """The answer of semantic_hybrid that decides as the answer of `semantic` does."""
    return answer | {"method": "semantic_hybrid", "latency_s": seconds, "target_passes": passes} | fields


def write_bench(root: Path, results: list[dict[str, Any]]) -> None:
    """results/bench as the runner leaves it."""
    write_jsonl(root / "results/bench/results.jsonl", results)
    provenance = {
        "code": {"commit": "0123456789abcdef0123456789abcdef01234567", "dirty": False},
        "machine": {"cpu": "A Processor @ 2.50GHz", "cores": 2, "gpu": None, "memory_gib": 7.7},
        "packages": {"numpy": "2.4.0", "torch": "2.13.0"},
        "params_sha256": "ab" * 32,
        "profile": "quick",
        "python": "3.11.7",
        "platform": "Linux x86_64",
    }
    write_json(root / "results/bench/summary.json", {"methods": summarize(results, 200), "provenance": provenance})


def score(spearman: float, brier: float) -> dict[str, Any]:
    """One predictor's view of a role, as probe.evaluation writes it."""
    one = {
        "n": 100,
        "questions": 20,
        "mae": 0.2,
        "spearman": spearman,
        "spearman_ci": [spearman - 0.1, spearman + 0.1],
        "brier": brier,
        "ece": 0.05,
        "mean_predicted": 0.5,
        "mean_label": 0.5,
        "reliability": [],
    }
    return {"all": one, "draft": one}


def verdict(spearman: float, agreement: float) -> dict[str, Any]:
    """One rule's row of the decision, as probe.evaluation writes it."""
    ci = [spearman - 0.1, spearman + 0.1]
    return {
        "mean_predicted": 0.7,
        "spearman": spearman,
        "spearman_ci": ci,
        "agreement": agreement,
        "unsaid_share": 0.2,
    }


def probe_metrics(draft: bool = True, target: bool = True, decision: bool | None = True) -> dict[str, Any]:
    """data/probes/metrics.json in which the named parts beat their baselines, or don't."""

    def role(good: bool) -> dict[str, Any]:
        history = [
            {"epoch": e, "folds": 5, "train_loss": 0.02 + 0.1 / e, "val_loss": 0.05 + 0.08 / e} for e in range(1, 40)
        ]
        best = 0.5 if good else 0.1
        return {
            "predictor": "linear",
            "chosen_because": f"linear: better rank correlation out of fold ({best:.3f})",
            "candidates": {"linear": score(best, 0.05 if good else 0.09), "mlp": score(0.05, 0.1)},
            "baselines": {"mean": score(0.0, 0.08), "logprob": score(0.3, 0.07)},
            "beats_baselines": good,
            "history": history,
            "n": {"rows": 200, "questions": 20, "draft_rows": 100},
        }

    both = {"mean": verdict(0.0, 0.6), "logprob": verdict(0.3, 0.65)}
    own = verdict(0.5, 0.75) if decision else verdict(0.1, 0.6)
    rule = {
        "n": 100,
        "questions": 20,
        "mean_true": 0.6,
        "unsaid_share_of_all": 0.3,
    }
    rules = {"ratio": own | {"beats_baselines": decision}, "joint": verdict(0.6, 0.8) | {"beats_baselines": True}}
    return {"draft": role(draft), "target": role(target), "decision": rule | {"rules": rules, "baselines": both}}


def write_probes(root: Path, metrics: dict[str, Any], contexts: int = 20, seed: int = 0) -> None:
    """Samples, labels, states, metrics and predictions: ten samples a context, half by each model."""
    rng = np.random.default_rng(seed)
    n = 10 * contexts
    context = np.repeat(np.arange(contexts), 10)
    label = rng.integers(0, 6, (n, 2)) / 5
    table = pd.DataFrame(
        {
            "sample_id": [f"s{i}" for i in range(n)],
            "context_id": [f"q{c}#0" for c in context],
            "question_id": [f"q{c}" for c in context],
            "author": ["draft" if i % 2 else "target" for i in range(n)],
        }
    )
    write_parquet(root / "data/samples/samples.parquet", table.assign(text="a step", index=0))
    hidden = rng.normal(size=(n, LAYERS, HIDDEN)) + 3 * label[:, 1, None, None] + (context % 4)[:, None, None]
    tensors = {"hidden": hidden.astype(np.float16)}
    write_safetensors(root / "data/samples/target.safetensors", tensors)
    write_parquet(root / "data/labels.parquet", table.assign(cluster=0, p_draft=label[:, 0], p_target=label[:, 1]))
    guess = np.clip(0.25 + 0.5 * label + rng.normal(0, 0.12, (n, 2)), 0.02, 1)
    write_parquet(
        root / "data/probes/predictions.parquet",
        table.assign(
            label_draft=label[:, 0],
            label_target=label[:, 1],
            pred_draft=guess[:, 0],
            pred_target=guess[:, 1],
            pred_joint=np.minimum(1, guess[:, 1] / guess[:, 0]),
        ),
    )
    write_json(root / "data/probes/metrics.json", metrics)


def page(root: Path, results: Any = None, metrics: Any = None, contexts: int = 1) -> str:
    """The page of a fake project; `metrics` None leaves every probe file out."""
    write_bench(root, rows() if results is None else results)
    if metrics is not None:
        write_probes(root, metrics, contexts)
    return build(settings(), root).read_text(encoding="utf-8")

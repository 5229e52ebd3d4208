"""The oracle: `semantic` with true semantic probabilities in place of probes, and what its answers cost.

It stands for the best that probes could do by the same rule and threshold. Time says little of models this small, so
the cost of an answer is counted in passes, weighed by the size of the model (decoding is bound by reading the weights).
It knows nothing of files, of labels, or of how probes are trained.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from semspec.decoding.acceptance import Judgement
from semspec.engine.base import Engine, Step
from semspec.problems.language import meaning
from semspec.rules import acceptance, ratio
from semspec.world.truth import Context, Shares, shares

if TYPE_CHECKING:
    from semspec.problems import Problem
    from semspec.schema import Settings


class Oracle:
    """min(1, p / q) of the true probabilities, with the bias and the threshold of `decide`; for `gamma` = 1.

    n: continuations of each model that a probability is counted from. A context's are drawn once and kept.
    """

    layers: Mapping[str, Sequence[int]] = {"draft": (), "target": ()}

    def __init__(self, draft: Engine, target: Engine, n: int, settings: Settings) -> None:
        self.engines = {"draft": draft, "target": target}
        self.n, self.settings = n, settings
        self.known: dict[tuple[str, ...], dict[str, Shares]] = {}

    def look(self, contexts: Sequence[Context], progress: Callable[[int], object] = lambda contexts: None) -> None:
        """Draw the probabilities of contexts; of many at once it takes less time than of each as it is met.

        `progress(contexts)` is told how many more are done, once for each model.
        """
        found = {r: shares(engine, contexts, self.n, self.settings, progress) for r, engine in self.engines.items()}
        for i, (question, steps) in enumerate(contexts):
            self.known[question, *steps] = {role: found[role][i] for role in found}

    def __call__(
        self, written: Sequence[Step], read: Sequence[Step], question: str, said: Sequence[str]
    ) -> list[Judgement]:
        """The judgement of the one step that was drafted; none where nothing could be."""
        if not written:
            return []
        (step,) = written
        key = (question, *said)
        if key not in self.known:
            self.look([(question, list(said))])  # nobody foresaw it
        meant = meaning(question, said, step.text)
        p, q = (self.known[key][role].get(meant, 0.0) for role in ("target", "draft"))
        q = max(q, 1 / self.n)  # the draft has just said it
        decide = self.settings.decide
        score = ratio(np.array([p]), np.array([q]))
        a = acceptance(score, decide.bias, decide.threshold)
        return [Judgement(p, q, float(a[0]), False, float(score[0]))]


def met(rows: Iterable[Mapping[str, Any]]) -> list[Context]:
    """The contexts that `semantic` met in these rows of graded.jsonl: most of those that the oracle will meet."""
    chains = [(row["question"], [step["text"] for step in row["trace"]]) for row in rows if row["method"] == "semantic"]
    found = {(question, *steps[:i]): (question, steps[:i]) for question, steps in chains for i in range(len(steps))}
    return list(found.values())


def passes(row: Mapping[str, Any], share: float) -> float:
    """Cost of an answer by `target`, `draft`, `semantic` or the oracle, in passes of the target.

    row: a row of results.jsonl; share: cost of a pass of the draft. The target makes a pass for each token that it
    writes and one for each verification; the draft one for each token that it writes, kept or not, and one to read what
    the target wrote in place of a rejected step.
    """
    if row["method"] == "draft":
        return share * float(row["output_tokens"])
    drafted = row["draft_tokens"] + row["discarded_tokens"] + row["offered"] - row["accepted"]
    return float(row["target_passes"] + row["verifications"] + share * drafted)


def answers(
    draft: Engine,
    target: Engine,
    problems: Sequence[Problem],
    oracle: Oracle,
    settings: Settings,
    progress: Callable[[], object] = lambda: None,
) -> list[dict[str, Any]]:
    """Rows of results.jsonl, method "oracle": its answers to `problems`, with the seeds that every method has."""
    from semspec.bench.runner import answer_seed, make_row
    from semspec.decoding import Semantic, Setup
    from semspec.problems import grade

    method = Semantic(Setup.of(settings), draft, target, oracle)
    rows = []
    for i, problem in enumerate(problems):
        seed = answer_seed(settings.seed, str(problem.id))
        answer = method.answer(problem.question, seed=seed)
        graded = grade(answer.text, problem.answer)
        rows.append(make_row(problem, "oracle", answer, graded, index=i, repeat=0, seed=seed, prompt="", passes={}))
        progress()
    return rows


def weights(engine: Any) -> int:
    """How many weights a model of the Hugging Face engine has."""
    return sum(p.numel() for p in engine.model.parameters())


def gains(rows: Sequence[Mapping[str, Any]], share: float) -> dict[str, dict[str, float]]:
    """{method: Pass@1, mean cost of an answer in passes of the target, and the target's summed cost over its own}.

    Of the methods that `passes` knows; rows of the oracle among them.
    """
    found: dict[str, dict[str, float]] = {}
    for name in ("target", "draft", "semantic", "oracle"):
        own = [row for row in rows if row["method"] == name and row["repeat"] == 0]
        if own:
            cost = float(np.mean([passes(row, share) for row in own]))
            found[name] = {"pass_at_1": float(np.mean([row["correct"] for row in own])), "passes": cost}
    for mine in found.values():
        if "target" in found:
            mine["speedup"] = found["target"]["passes"] / mine["passes"]
    return found

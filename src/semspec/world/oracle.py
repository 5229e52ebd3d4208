"""The oracle: `semantic` with true semantic probabilities in place of probes, and what its answers cost.

It stands for the best that probes could do by the same rule and threshold. Time says little of models this small, so
the cost of an answer is counted in passes, weighed by the size of the model (decoding is bound by reading the weights).
It knows nothing of files, of labels, or of how probes are trained.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
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


Known = Mapping[tuple[str, ...], dict[str, Shares]]


class Oracle:
    """min(1, p / q) of the true probabilities, with the bias and the threshold of `decide`; for `gamma` = 1.

    n: continuations of each model that a probability is counted from. A context's are drawn once and kept.
    known: what has been drawn already, {(question, *steps): {role: shares}}.
    """

    layers: Mapping[str, Sequence[int]] = {"draft": (), "target": ()}

    def __init__(self, draft: Engine, target: Engine, n: int, settings: Settings, known: Known | None = None) -> None:
        self.engines = {"draft": draft, "target": target}
        self.n, self.settings, self.known = n, settings, dict(known or {})

    def __call__(
        self, written: Sequence[Step], read: Sequence[Step], question: str, said: Sequence[str]
    ) -> list[Judgement]:
        """The judgement of the one step that was drafted; none where nothing could be."""
        if not written:
            return []
        (step,) = written
        key = (question, *said)
        if key not in self.known:  # nobody foresaw it
            drawn = {r: shares(e, [(question, list(said))], self.n, self.settings) for r, e in self.engines.items()}
            self.known[key] = {role: found for role, (found,) in drawn.items()}
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


def answer(
    draft: Engine, target: Engine, problem: Problem, index: int, oracle: Oracle, settings: Settings
) -> dict[str, Any]:
    """A row of results.jsonl, method "oracle": its answer to a problem, with the seed that every method has."""
    from semspec.bench.runner import answer_seed, make_row
    from semspec.decoding import Semantic, Setup
    from semspec.problems import grade

    seed = answer_seed(settings.seed, str(problem.id))
    found = Semantic(Setup.of(settings), draft, target, oracle).answer(problem.question, seed=seed)
    graded = grade(found.text, problem.answer)
    return make_row(problem, "oracle", found, graded, index=index, repeat=0, seed=seed, prompt="", passes={})


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

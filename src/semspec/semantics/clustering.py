"""Grouping texts by meaning, given a decision for pairs.

Greedy, with one representative per cluster (Kuhn et al., "Semantic uncertainty", 2023): a text joins the
first cluster whose representative means the same, else it opens a cluster. It knows nothing of how a pair is
decided.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

Same = Callable[[list[tuple[str, str]]], list[bool]]


def cluster(texts: Sequence[str], same: Same) -> list[int]:
    """Cluster id of each text, numbered by first appearance.

    `same` decides a list of pairs (representative, text); it is called at most once per text, with every
    representative so far. A repeated text takes its first occurrence's cluster without a call. The result
    depends on the order of `texts`, since meaning the same need not be transitive.
    """
    representatives: list[str] = []
    seen: dict[str, int] = {}
    ids: list[int] = []
    for text in texts:
        if text not in seen:
            decisions = same([(r, text) for r in representatives]) if representatives else []
            seen[text] = next((i for i, yes in enumerate(decisions) if yes), len(representatives))
            if seen[text] == len(representatives):
                representatives.append(text)
        ids.append(seen[text])
    return ids

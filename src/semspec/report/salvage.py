"""What salvaging a rejected step saves: `semantic_hybrid` against `semantic` where both decided alike.

The two judge by the same rule and the same random numbers, and differ in how a rejected step is written. Over a whole
run they also come to different texts, so only answers with the same decisions show what that difference is worth. Rows
of results.jsonl in, a table out. Knows the fields of a row, not how either method works.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from semspec.bench.metrics import BY_KEY
from semspec.bench.statistics import ratio_interval
from semspec.decoding.semantic import Semantic
from semspec.decoding.semantic_hybrid import SemanticHybrid
from semspec.report.tables import DASH, NOT_RUN, Table
from semspec.schema import Exact

Row = Mapping[str, Any]
COLUMNS = ("Methods", "Answers", "n", "Target's passes", "Ratio", "Latency (s)", "Ratio", "Pass@1")
RAW_COLUMNS = (
    *("semantic", "hybrid", "answers", "n", "of"),
    *("passes_semantic", "passes_hybrid", "passes_ratio", "passes_ratio_low", "passes_ratio_high"),
    *("latency_s_semantic", "latency_s_hybrid", "latency_ratio", "latency_ratio_low", "latency_ratio_high"),
    *("pass_at_1_semantic", "pass_at_1_hybrid"),
)
ALIKE, REJECTED = "decided alike", "decided alike, a step rejected"
NOTES = [
    (
        "Decided alike",
        "Answers to the same problem, with the same seed, for which semantic and semantic_hybrid judged the same "
        "drafted steps, word for word and in the same order, and came to the same verdicts. The answers that come "
        "apart are left out: this says what salvaging is worth at the same decisions, and Results says how the two "
        "methods do on all problems.",
    ),
    (
        "A step rejected",
        "Of these the answers with a rejected step: only there is anything to salvage. In the others both do the "
        "same, and their latencies differ as the machine's do.",
    ),
    ("Passes", BY_KEY["target_passes"].definition + " They are the target's decode steps."),
    ("a → b", "Mean of an answer, by semantic and by semantic_hybrid."),
    (
        "Ratio",
        "The hybrid's sum over that of semantic, below 1 where it saves; 95% interval by paired bootstrap over "
        "problems.",
    ),
]


@dataclass(frozen=True)
class Pairs:
    """Answers of both methods that belong together, `[n]` each, out of `of` that both gave."""

    semantic: str
    hybrid: str
    which: str
    semantic_rows: list[Row]
    hybrid_rows: list[Row]
    of: int

    def mean(self, field: str) -> tuple[float | None, float | None]:
        """Mean of a field over the answers of `semantic`, and of the hybrid; None where there are none."""
        if not self.semantic_rows:
            return None, None
        ours, theirs = (float(np.mean([r[field] for r in rows])) for rows in (self.semantic_rows, self.hybrid_rows))
        return ours, theirs

    def ratio(self, field: str, resamples: int, seed: int) -> tuple[float, tuple[float, float] | None] | None:
        """The hybrid's sum of a field over that of `semantic`, and its interval where two problems or more have one."""
        below, above = (_sums(rows, field) for rows in (self.semantic_rows, self.hybrid_rows))
        shown = [k for k in below if below[k] or above[k]]  # the others add nothing to either sum
        a, b = [above[k] for k in shown], [below[k] for k in shown]
        if not sum(b):
            return None
        interval = ratio_interval(a, b, resamples, seed) if len(b) > 1 and all(b) else None
        return sum(a) / sum(b), interval


def _sums(rows: Sequence[Row], field: str) -> dict[str, float]:
    """{problem id: sum over its answers}."""
    sums: dict[str, float] = {}
    for row in rows:
        sums[str(row["id"])] = sums.get(str(row["id"]), 0.0) + row[field]
    return sums


def decisions(row: Row) -> list[tuple[str, bool]]:
    """(drafted step, whether it was kept), in order: what a method was shown, and what it said."""
    judged = [s for s in row.get("trace") or () if s.get("accepted") is not None]
    return [(s["text"] if s["accepted"] else s["rejected_text"], s["accepted"]) for s in judged]


def _deciding(variant: str) -> frozenset[str]:
    """The parameters of a variant that both share: those of exact verification matter to how a rejected step is
    written, which is what is compared; how the draft writes is not."""
    salvaging = Exact.model_fields.keys() - {"drafting"}
    return frozenset(c for c in variant.split("+") if c and c.partition("=")[0] not in salvaging)


def twins(names: Sequence[str]) -> list[tuple[str, str]]:
    """(variant of `semantic`, variant of `semantic_hybrid`) that decide by the same parameters."""
    plain: dict[frozenset[str], str] = {}
    for name in names:
        method, _, variant = name.partition("@")
        if method == Semantic.name:
            plain.setdefault(_deciding(variant), name)
    hybrids = [n for n in names if n.partition("@")[0] == SemanticHybrid.name]
    return [(plain[key], n) for n in hybrids if (key := _deciding(n.partition("@")[2])) in plain]


def pairs(rows: Sequence[Row], semantic: str, hybrid: str) -> list[Pairs]:
    """The answers that the two methods decided alike, and those of them with a rejected step."""
    by: dict[str, dict[tuple[str, int, Any], Row]] = {semantic: {}, hybrid: {}}
    for row in rows:
        if row["method"] in by:
            by[row["method"]][str(row["id"]), row["repeat"], row.get("seed")] = row
    both = [(row, by[hybrid][key]) for key, row in by[semantic].items() if key in by[hybrid]]
    alike = [(a, b) for a, b in both if decisions(a) == decisions(b)]
    rejected = [(a, b) for a, b in alike if not all(kept for _, kept in decisions(a))]
    return [
        Pairs(semantic, hybrid, which, [a for a, _ in chosen], [b for _, b in chosen], len(whole))
        for which, chosen, whole in ((ALIKE, alike, both), (REJECTED, rejected, alike))
    ]


def found(rows: Sequence[Row]) -> list[Pairs]:
    """Every pair of variants in `rows`, each with both of its parts."""
    names = list(dict.fromkeys(row["method"] for row in rows))
    return [part for a, b in twins(names) for part in pairs(rows, a, b)]


def _ratio_text(ratio: tuple[float, tuple[float, float] | None] | None) -> str:
    if ratio is None:
        return DASH
    value, interval = ratio
    return f"{value:.2f}" + (f" [{interval[0]:.2f}, {interval[1]:.2f}]" if interval else "")


def _both(means: tuple[float | None, float | None], metric: str) -> str:
    one, two = means
    return DASH if one is None or two is None else f"{BY_KEY[metric].show(one)} → {BY_KEY[metric].show(two)}"


def table(rows: Sequence[Row], resamples: int = 2000, seed: int = 0) -> Table:
    """Target's passes, latency and Pass@1 of both methods at the same decisions; "not run" where one of them is not."""
    shown, raw = [], []
    for part in found(rows):
        cells: list[str] = []
        values: list[Any] = [part.semantic, part.hybrid, part.which, len(part.semantic_rows), part.of]
        for field in ("target_passes", "latency_s"):
            means, ratio = part.mean(field), part.ratio(field, resamples, seed)
            cells += [_both(means, field), _ratio_text(ratio)]
            interval = (ratio[1] if ratio else None) or (None, None)
            values += [*means, ratio[0] if ratio else None, *interval]
        right = part.mean("correct")
        name, n = f"{part.semantic} → {part.hybrid}", f"{len(part.semantic_rows)} of {part.of}"
        shown.append([name, part.which, n, *cells, _both(right, "pass_at_1")])
        raw.append([*values, *right])
    if not shown:
        shown = [[f"{Semantic.name} → {SemanticHybrid.name}", *[NOT_RUN] * (len(COLUMNS) - 1)]]
        raw = [[Semantic.name, SemanticHybrid.name, *[NOT_RUN] * (len(RAW_COLUMNS) - 2)]]
    return Table("hybrid", "What salvaging saves", list(COLUMNS), shown, NOTES, list(RAW_COLUMNS), raw)


def sentences(rows: Sequence[Row], resamples: int = 2000, seed: int = 0) -> list[tuple[str, str]]:
    """The same in a sentence for each pair of methods, as notes below the table of results."""
    out = []
    for part in found(rows):
        if part.which != REJECTED:
            continue
        n = len(part.semantic_rows)
        text = f"{part.of} answers decided alike, {n} of them with a rejected step"
        if n:
            passes, seconds = (_ratio_text(part.ratio(f, resamples, seed)) for f in ("target_passes", "latency_s"))
            right = _both(part.mean("correct"), "pass_at_1")
            text += f"; over these its passes are {passes} of those of {part.semantic}, its latency is {seconds}, and "
            text += f"Pass@1 goes {right}"
        out.append((f"{part.hybrid} against {part.semantic}", text + "."))
    return out or [(f"{SemanticHybrid.name} against {Semantic.name}", f"{NOT_RUN}.")]

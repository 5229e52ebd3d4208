"""What the paper prints: the layouts of its tables and figures, and the numbers in them.

A layout is data: benchmarks and metrics across, rows down, the printed numbers. What the paper shows only as a picture
has no numbers here. Knows nothing of runs of ours.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

PICTURE = "picture only"  # the paper shows it without printing the number
BENCHMARKS = ("AMC23", "AIME24", "Math-500", "GPQA-D")
OURS_IN_PAPER = dict(zip(("amc23", "aime24", "math500", "gpqa_diamond"), BENCHMARKS, strict=True))
# title -> (key in summary.json, printed form); latency in seconds a problem, Ratio the target's share of the tokens
METRICS = {
    "Pass@1": ("pass_at_1", "{:.3f}"),
    "TPS": ("tps", "{:.2f}"),
    "Latency": ("latency_s", "{:.2f}"),
    "Ratio": ("target_ratio", "{:.2f}"),
}
THREE = ("Pass@1", "TPS", "Latency")
R1 = "DeepSeekR1-1.5B → DeepSeekR1-32B"
QWQ = "DeepSeekR1-1.5B → QwQ-32B"
Numbers = Mapping[str, Sequence[float]]


@dataclass(frozen=True)
class Layout:
    """A table of the paper; `published` has its numbers: {pair: {row: numbers, benchmark by benchmark}}."""

    name: str
    title: str
    rows: tuple[str, ...]
    published: Mapping[str, Numbers]
    metrics: tuple[str, ...] = THREE
    benchmarks: tuple[str, ...] = BENCHMARKS
    notes: tuple[tuple[str, str], ...] = ()


_DRAFT = (0.658, 378.30, 19.59, 0.233, 380.67, 29.45, 0.8142, 380.51, 12.70, 0.338, 371.93, 21.30)
_RANDOM = (
    0.775,
    115.90,
    49.98,
    0.27,
    0.470,
    80.94,
    124.61,
    0.28,
    0.840,
    109.20,
    31.92,
    0.20,
    0.308,
    65.68,
    88.91,
    0.31,
)
_LAST = (0.865, 134.31, 53.69, 0.17, 0.400, 129.65, 82.03, 0.14, 0.874, 145.56, 32.57, 0.23, 0.557, 84.61, 69.60, 0.21)
_ALL = (0.892, 120.55, 49.29, 0.15, 0.553, 116.27, 86.75, 0.12, 0.910, 117.33, 35.47, 0.14, 0.573, 85.28, 66.28, 0.22)
_Q_RANDOM = (
    0.758,
    54.12,
    133.36,
    0.31,
    0.460,
    53.63,
    202.87,
    0.29,
    0.814,
    58.11,
    80.90,
    0.28,
    0.286,
    52.04,
    91.49,
    0.21,
)
_Q_LAST = (
    0.825,
    146.09,
    51.87,
    0.31,
    0.466,
    139.84,
    81.24,
    0.29,
    0.892,
    144.79,
    36.32,
    0.32,
    0.525,
    49.68,
    156.00,
    0.33,
)
_Q_ALL = (0.892, 85.03, 75.42, 0.23, 0.610, 86.88, 119.06, 0.21, 0.922, 97.00, 43.53, 0.19, 0.552, 73.36, 98.68, 0.21)

TABLE_1 = Layout(
    "paper_table1",
    "Table 1: predictors",
    ("Random", "Last-hidden", "SemanticSpec"),
    {
        R1: {"Random": _RANDOM, "Last-hidden": _LAST, "SemanticSpec": _ALL},
        QWQ: {"Random": _Q_RANDOM, "Last-hidden": _Q_LAST, "SemanticSpec": _Q_ALL},
    },
    (*THREE, "Ratio"),
    notes=(
        (
            "Random",
            "p and q drawn uniformly instead of predicted; whatever the rule of the other rows, a step is kept with "
            "probability min(1, p / q), which is the paper's rule.",
        ),
        (
            "Last-hidden",
            "Of the hidden states the probes see those of the last layer only; what else they see is as in the row "
            "SemanticSpec.",
        ),
    ),
)
TABLE_2 = Layout(
    "paper_table2",
    "Table 2: predictors from another domain",
    ("Within-domain", "Cross-domain"),
    {
        R1: {
            "Within-domain": (0.892, 120.55, 49.29, 0.553, 116.27, 86.75, 0.910, 117.33, 35.47, 0.573, 85.28, 66.28),
            "Cross-domain": (0.875, 125.57, 49.90, 0.533, 122.64, 82.38, 0.911, 139.23, 31.72, 0.552, 70.09, 82.14),
        }
    },
    notes=(
        (
            "Domains",
            "The paper's two, mathematics and science, each of any level. Its probes are trained on the part of s1K "
            "that is of the benchmark's domain; in the row Cross-domain those of science answer the three sets of "
            "mathematics, and those of mathematics GPQA-D.",
        ),
    ),
)
TABLE_3 = Layout(
    "paper_table3",
    "Table 3: within Hugging Face's framework",
    ("Draft Model", "Target Model", "SemanticSpec"),
    {
        "DeepSeekR1-1.5B → target not named": {
            "Draft Model": (0.211, 21.99, 519.35, 0.738, 40.49, 127.73),
            "Target Model": (0.550, 11.86, 735.75, 0.945, 11.09, 333.01),
            "SemanticSpec": (0.520, 14.80, 653.05, 0.935, 20.51, 243.92),
        }
    },
    benchmarks=("AIME24", "Math-500"),
    notes=(
        ("Ours", "Runs in which Transformers runs both models (engine.kind: transformers); they fill Table 4 too."),
    ),
)
TABLE_4 = Layout(
    "paper_table4",
    "Table 4: all methods",
    ("Draft Model", "Target Model", "SpecReason", "SpecThinking", "SpecSampling", "SemanticSpec"),
    {
        R1: {
            "Draft Model": _DRAFT,
            "Target Model": (0.925, 34.78, 154.34, 0.621, 41.03, 214.76, 0.928, 39.21, 89.91, 0.593, 40.65, 170.87),
            "SpecReason": (0.775, 125.92, 49.98, 0.470, 80.95, 124.61, 0.840, 149.19, 31.92, 0.281, 52.79, 159.33),
            "SpecThinking": (0.650, 284.59, 24.99, 0.241, 272.79, 37.09, 0.823, 284.34, 15.94, 0.315, 250.31, 44.88),
            "SpecSampling": (0.842, 65.73, 91.40, 0.443, 53.29, 191.45, 0.880, 68.58, 59.32, 0.424, 73.00, 82.78),
            "SemanticSpec": (0.892, 120.58, 49.29, 0.553, 116.32, 86.75, 0.910, 117.36, 35.47, 0.5725, 85.30, 66.28),
        },
        QWQ: {
            "Draft Model": _DRAFT,
            "Target Model": (0.925, 40.62, 165.02, 0.63, 40.62, 250.75, 0.935, 40.71, 99.04, 0.5959, 39.73, 176.25),
            "SpecReason": (0.857, 64.52, 98.59, 0.610, 45.96, 205.70, 0.770, 76.02, 53.66, 0.310, 68.83, 109.64),
            "SpecThinking": (0.614, 309.55, 30.20, 0.204, 285.20, 45.87, 0.710, 312.77, 27.99, 0.310, 250.31, 44.88),
            "SpecSampling": (0.825, 58.53, 120.39, 0.540, 34.25, 316.19, 0.895, 52.61, 90.33, 0.5250, 37.59, 194.01),
            "SemanticSpec": (0.892, 85.00, 75.42, 0.610, 86.79, 119.06, 0.9217, 96.95, 43.53, 0.552, 73.32, 98.68),
        },
    },
)
FIGURE_4 = Layout(
    "paper_figure4",
    "Figure 4: steps drafted per verification",
    ("γ = 1", "γ = 2", "γ = 3"),
    {"pair not named": {}},
    ("Pass@1", "TPS"),
    notes=(("The paper", "Reports that Pass@1 and TPS both fall as γ grows, on every benchmark; prints no numbers."),),
)
FIGURE_5 = Layout(
    "paper_figure5",
    "Figure 5: where a step ends",
    ("blank line", "sentence end"),
    {"pair not named": {}},
    ("Pass@1", "TPS"),
    notes=(
        (
            "The paper",
            "Reports a slightly better Pass@1 and a clearly lower TPS for the sentence end; prints no numbers.",
        ),
    ),
)
LAYOUTS = (TABLE_1, TABLE_2, TABLE_3, TABLE_4, FIGURE_4, FIGURE_5)

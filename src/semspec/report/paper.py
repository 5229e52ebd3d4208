"""The paper's tables and figures, in the paper's layout: its published numbers, and ours where there are any.

A layout is data: benchmarks and metrics across, rows down, the numbers that the paper prints. `fill` puts a block of
ours below them, from one run or from several of the same pair of models; a cell that no run of ours gave says so, and
notes say how the rows were made where that is not the paper's way. What the paper shows only as a picture has no
numbers here. Knows summaries of methods and the settings of their run; computes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from semspec import config
from semspec.errors import UserError
from semspec.report.tables import DASH, NOT_RUN, Table
from semspec.rules import in_words

if TYPE_CHECKING:
    from semspec.schema import Settings

PICTURE = "picture only"  # the paper shows it without printing the number
BENCHMARKS = ("AMC23", "AIME24", "Math-500", "GPQA-D")
OURS_IN_PAPER = dict(zip(("amc23", "aime24", "math500", "gpqa_diamond"), BENCHMARKS, strict=True))
# the domain of a problem set, as the paper divides them: mathematics of any level, and science
DOMAINS = dict.fromkeys(("s1k:science", "gpqa_diamond"), "science") | dict.fromkeys(
    ("gsm_symbolic", "gsm8k", "math500", "aime24", "amc23", "s1k:math", "synthetic"), "mathematics"
)
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
SEMANTIC, RANDOM, LAST_HIDDEN = "semantic", "semantic_random", "semantic_last_hidden"
CROSS_DOMAIN = "semantic_cross_domain"
LAYOUTS = (TABLE_1, TABLE_2, TABLE_3, TABLE_4, FIGURE_4, FIGURE_5)
METHODS = {
    "Draft Model": "draft",
    "Target Model": "target",
    "SpecReason": "specreason",
    "SpecThinking": "speculative_thinking",
    "SpecSampling": "speculative_sampling",
    "SemanticSpec": SEMANTIC,
}


@dataclass(frozen=True)
class Run:
    """A finished comparison; `methods` is that of summary.json, `settings` None where they are not known.

    `how`: what a reader must know to put its numbers beside another run's. `trained`: {method: the problem set that its
    probes were trained on}, for those that are recorded.
    """

    folder: str
    pair: str
    dataset: str
    methods: Mapping[str, Mapping[str, Any]]
    settings: Settings | None
    how: str = ""
    trained: Mapping[str, str] = field(default_factory=dict)

    @property
    def group(self) -> str:
        """The benchmark's name in the paper's columns."""
        return OURS_IN_PAPER.get(self.dataset, self.dataset)

    def probes_of(self, method: str) -> str | None:
        """The problem set that the probes of a method were trained on; None where nothing says so.

        Probes of the project itself are those of `contexts.dataset`, where the run does not name their set.
        """
        own = self.settings.contexts.dataset if self.settings and method != CROSS_DOMAIN else None
        return self.trained.get(method, own)


@dataclass
class Block:
    """Rows of one source: the paper's for one pair of models, or ours."""

    title: str
    ours: bool
    rows: list[tuple[str, list[str]]] = field(default_factory=list)  # (row's name, cells)


@dataclass
class Filled:
    """A layout with its cells; `groups` are the benchmarks, each over all `metrics`.

    `measured`: {benchmark: {row: its summary}}, of ours alone.
    """

    layout: Layout
    groups: list[str]
    blocks: list[Block]
    notes: list[tuple[str, str]]
    measured: dict[str, dict[str, Mapping[str, Any]]] = field(default_factory=dict)

    def table(self) -> Table:
        """As a flat table, for Markdown and CSV."""
        columns = [f"{g} {m}" for g in self.groups for m in self.layout.metrics]
        rows = [[block.title, name, *cells] for block in self.blocks for name, cells in block.rows]
        return Table(
            self.layout.name, f"The paper's {self.layout.title}", ["Source", "Row", *columns], rows, self.notes
        )


def which(layout: Layout, run: Run) -> dict[str, str]:
    """{row: the method of this run that it shows}; of most tables none where the settings of the run are not known."""
    if layout is TABLE_4:
        return METHODS
    if run.settings is None:
        return {}
    return {
        TABLE_1.name: _predictors,
        TABLE_2.name: _domains,
        TABLE_3.name: _transformers,
        FIGURE_4.name: _gammas,
        FIGURE_5.name: _splits,
    }[layout.name](run, run.settings)


def _predictors(run: Run, settings: Settings) -> dict[str, str]:
    if settings.train.layers == "last":
        return {"Random": RANDOM, "Last-hidden": SEMANTIC}
    ours, last = papers_rule(run, SEMANTIC), papers_rule(run, LAST_HIDDEN)
    if ours and (last or LAST_HIDDEN not in run.methods):  # rows of two rules would compare the rules
        return {"Random": RANDOM, "SemanticSpec": ours, "Last-hidden": last or ""}
    return {"Random": RANDOM, "SemanticSpec": SEMANTIC, "Last-hidden": LAST_HIDDEN}


def _domains(run: Run, settings: Settings) -> dict[str, str]:
    asked, found = DOMAINS.get(run.dataset), {}
    for row, methods in (("Within-domain", (CROSS_DOMAIN, SEMANTIC)), ("Cross-domain", (SEMANTIC, CROSS_DOMAIN))):
        for method in methods:  # the last one that fits gives the row
            domain = DOMAINS.get(run.probes_of(method) or "")
            if asked and domain and (domain == asked) == (row == "Within-domain") and method in run.methods:
                found[row] = method
    return found


def _transformers(run: Run, settings: Settings) -> dict[str, str]:
    kinds = {settings.engine.of(role).kind for role in ("draft", "target")}
    return METHODS if kinds == {"transformers"} else {}


def _gammas(run: Run, settings: Settings) -> dict[str, str]:
    variants = {f"γ = {g}": f"{SEMANTIC}@gamma={g}" for g in (1, 2, 3)}
    return variants | {f"γ = {settings.bench.gamma}": SEMANTIC}


def _splits(run: Run, settings: Settings) -> dict[str, str]:
    return {{"blank_line": "blank line", "sentence": "sentence end"}[settings.text.split]: SEMANTIC}


def papers_rule(run: Run, method: str) -> str | None:
    """The name under which the run has `method` with the paper's own rule, all else alike; None where it has none."""
    if run.settings is None:
        return None
    wanted = run.settings.model_copy(
        update={"decide": run.settings.decide.model_copy(update={"rule": "ratio", "threshold": None, "bias": 0.0})}
    ).model_dump(exclude={"bench": {"variants"}})
    for name in run.methods:
        try:
            plain, own = config.variant(run.settings, name)
        except UserError:  # a method of another version
            continue
        if plain == method and own.model_dump(exclude={"bench": {"variants"}}) == wanted:
            return name
    return None


def fill(layout: Layout, runs: Sequence[Run]) -> Filled:
    """The layout with the paper's numbers and, below, ours from `runs` of one pair; the first that has a cell gives it.

    A problem set that the paper does not use becomes one more group of columns, empty in the paper's rows.
    """
    groups = list(dict.fromkeys([*layout.benchmarks, *(run.group for run in runs)]))
    width = len(layout.metrics)
    blocks = []
    for name, numbers in layout.published.items():
        block = Block(f"The paper: {name}", ours=False)
        extra = [DASH] * (width * (len(groups) - len(layout.benchmarks)))
        for row in layout.rows:
            printed = [_printed(v, layout.metrics[i % width]) for i, v in enumerate(numbers.get(row, ()))] or [
                PICTURE
            ] * (width * len(layout.benchmarks))
            block.rows.append((row, printed + extra))
        blocks.append(block)
    found: dict[tuple[str, str], tuple[Run, Mapping[str, Any]]] = {}  # by row and benchmark: whose, and its summary
    for run in reversed(runs):
        source = which(layout, run)
        for row in layout.rows:
            if summary := run.methods.get(source.get(row, "")):
                found[row, run.group] = run, summary
    ours = Block(f"{'This run' if len(runs) == 1 else 'These runs'}: {runs[0].pair}", ours=True)
    for row in layout.rows:
        given = [found.get((row, group), (None, {}))[1] for group in groups]
        ours.rows.append((row, [_cell(summary, metric) for summary in given for metric in layout.metrics]))
    notes, measured = [], {}
    for group in groups:
        if own := {row: found[row, group][1] for row in layout.rows if (row, group) in found}:
            measured[group] = own
    for run in runs:
        rows = [row for row in layout.rows if found.get((row, run.group), (None,))[0] is run]
        text = [f"{run.group}: {', '.join(rows)} ({run.how})."] if rows and len(runs) > 1 else []
        told = {TABLE_1.name: _told_of_predictors, TABLE_2.name: _told_of_domains}.get(layout.name)
        if told and (rows or len(runs) == 1 or CROSS_DOMAIN in run.methods):
            text.append(told(run, rows))
        if any(text):
            notes.append(("This run" if len(runs) == 1 else run.folder, " ".join(filter(None, text))))
    return Filled(layout, groups, [*blocks, ours], [*layout.notes, *notes], measured)


def _told_of_predictors(run: Run, rows: Sequence[str]) -> str:
    """By which rule and from which features the rows of Table 1 were made."""
    if run.settings is None or not {"SemanticSpec", "Last-hidden"} & set(rows):
        return ""
    train, source = run.settings.train, which(TABLE_1, run)
    features = {
        "hidden": "hidden states alone",
        "logprob": "statistics of the steps' log-probabilities alone",
        "both": "hidden states and statistics of the steps' log-probabilities",
    }[train.features]
    layers = train.layers if isinstance(train.layers, str) else "chosen ones"
    text = (
        f"The probes see {features} (train.features: {train.features}, train.layers: {layers}); the paper's see the "
        "hidden states of all layers and nothing else."
    )
    for row in rows:
        if row != "Random":
            _, own = config.variant(run.settings, source[row])
            text += f" {row} is `{source[row]}`: {in_words(own.decide)} ({_whose(own)})."
    drawn = papers_rule(run, SEMANTIC)
    if "SemanticSpec" in rows and drawn and drawn != source["SemanticSpec"]:
        numbers = ", ".join(f"{metric} {_cell(run.methods[drawn], metric)}" for metric in TABLE_1.metrics)
        text += f" The paper's own rule, which Random has too: `{drawn}`, {numbers}."
    return text


def _whose(settings: Settings) -> str:
    decide = settings.decide
    if decide.rule == "ratio" and decide.threshold is None and not decide.bias:
        return "the paper's rule"
    return f"decide.rule: {decide.rule}, not the paper's rule"


def _told_of_domains(run: Run, rows: Sequence[str]) -> str:
    """What the probes behind the rows of Table 2 were trained on, and why a method that ran may have no row there."""
    asked = DOMAINS.get(run.dataset, "of no domain that is known")
    text = []
    for method in (SEMANTIC, CROSS_DOMAIN):
        if method not in run.methods or run.settings is None:
            continue
        trained = run.probes_of(method)
        if trained is None:
            text.append(f"What the probes of `{method}` were trained on is not recorded, so it fills no row.")
            continue
        domain = DOMAINS.get(trained, "of no domain that is known")
        text.append(f"The probes of `{method}` were trained on {trained} ({domain}).")
    return " ".join([*text, f"The problems are those of {run.dataset} ({asked})."]) if text else ""


def _cell(summary: Mapping[str, Any], metric: str) -> str:
    key, form = METRICS[metric]
    value = summary.get(key)
    return (DASH if summary else NOT_RUN) if value is None else form.format(value)


def _printed(value: float, metric: str) -> str:
    """A number of the paper with the digits of ours, and more where it prints more."""
    text = METRICS[metric][1].format(value)
    return text if float(text) == value else f"{value:g}"


def plane(filled: Filled) -> list[tuple[str, dict[str, dict[str, tuple[float, float]]]]]:
    """Figure 3 from Table 4: [(source, {benchmark: {row: (latency, Pass@1)}})]; a panel without numbers is empty."""
    out = []
    at = {m: i for i, m in enumerate(filled.layout.metrics)}
    width = len(at)
    for block in filled.blocks:
        panels: dict[str, dict[str, tuple[float, float]]] = {g: {} for g in filled.groups}
        for row, cells in block.rows:
            for i, group in enumerate(filled.groups):
                x, y = (cells[i * width + at[m]] for m in ("Latency", "Pass@1"))
                if not {x, y} & {NOT_RUN, DASH, PICTURE}:
                    panels[group][row] = (float(x), float(y))
        out.append((block.title, panels))
    return out

"""The paper's tables and figures with numbers of ours in them.

`fill` puts a block of ours below what the paper prints (`published.py`), from one run or from several of the same pair
of models; a cell that no run of ours gave says so, and notes say how the rows were made where that is not the paper's
way. Knows summaries of methods and the settings of their run; computes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from semspec import config
from semspec.errors import UserError
from semspec.report.published import (
    FIGURE_4,
    FIGURE_5,
    METRICS,
    OURS_IN_PAPER,
    PICTURE,
    TABLE_1,
    TABLE_2,
    TABLE_3,
    TABLE_4,
    Layout,
)
from semspec.report.tables import DASH, NOT_RUN, Table
from semspec.rules import in_words

if TYPE_CHECKING:
    from semspec.schema import Settings

# the domain of a problem set, as the paper divides them: mathematics of any level, and science
DOMAINS = dict.fromkeys(("s1k:science", "gpqa_diamond"), "science") | dict.fromkeys(
    ("gsm_symbolic", "gsm8k", "math500", "aime24", "amc23", "s1k:math", "synthetic"), "mathematics"
)
SEMANTIC, RANDOM, LAST_HIDDEN = "semantic", "semantic_random", "semantic_last_hidden"
CROSS_DOMAIN = "semantic_cross_domain"
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

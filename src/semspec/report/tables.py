"""Tables of the report: rows of printed text, as Markdown, CSV, HTML (by the template) or on a terminal.

What a metric means and how it is printed comes from bench.metrics; this module only lays values out.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from semspec.bench.metrics import BY_KEY, METRICS, order
from semspec.files import atomic

if TYPE_CHECKING:
    from rich.table import Table as RichTable

DASH = "–"
NOT_RUN = "not run"
ACROSS = 4  # methods that stand side by side in 80 columns
MAIN = ("pass_at_1", "speedup_total", "acceptance_rate")  # what a comparison of many methods is about
WIDE = (
    *("pass_at_1", "pass_at_1_diff", "latency_s", "speedup_total"),
    *("target_ratio", "acceptance_rate", "discarded_tokens", "truncated"),
)  # the same where there is room
ROLES = ("draft", "target")
RULES = {"ratio": "min(1, p/q)", "joint": "joint predictor", "p": "p alone"}
BASELINES = {
    "mean": "baseline: mean label",
    "logprob": "baseline: mean log-probability",
    "constant": "baseline: constant",  # of the decision alone
}
PROBE_NOTES = [
    ("MAE", "Mean absolute difference between predicted semantic probability and label."),
    ("Spearman", "Rank correlation of prediction and label; 95% interval by bootstrap over questions."),
    ("Brier", "Mean squared difference between prediction and label."),
    ("ECE", "Expected calibration error over ten bins of equal count."),
    ("baseline: mean label", "Predicts the mean label of the training folds, whatever the step."),
    (
        "baseline: mean log-probability",
        "The step's mean token log-probability, calibrated; no hidden states.",
    ),
]
DECISION_NOTES = [
    (
        "Mean acceptance",
        "Mean acceptance probability of the draft's samples, of questions that the predictors did not see.",
    ),
    ("true labels", "min(1, p/q) with p and q from the labels."),
    (
        "Baselines",
        "min(1, p/q) with p and q from that predictor.",
    ),
    (
        "baseline: constant",
        "The median of min(1, p/q) from the labels of the training folds, whatever the step.",
    ),
    (
        "Spearman",
        "Rank correlation with min(1, p/q) from the true labels; 95% interval by bootstrap over questions.",
    ),
    ("Agreement", "Chance that the predicted and the true rule decide alike on one uniform draw."),
    (
        "Never said",
        "Expected share of accepted steps whose meaning the target produced in none of its samples.",
    ),
]


@dataclass
class Table:
    """A titled table; the first column holds the row's name, all cells are text."""

    name: str
    title: str
    columns: list[str]
    rows: list[list[str]]
    notes: list[tuple[str, str]] = field(default_factory=list)  # (term, its definition), printed below
    raw_columns: list[str] | None = None
    raw: list[list[Any]] | None = None  # unrounded values for the CSV, where they differ from the text

    def markdown(self) -> str:
        def line(cells: Sequence[str]) -> str:
            return "| " + " | ".join(c.replace("|", "\\|").replace("\n", " ") for c in cells) + " |"

        head = [f"# {self.title}", "", line(self.columns), line(["---"] * len(self.columns))]
        notes = [""] + [f"- **{term}**: {text}" for term, text in self.notes] if self.notes else []
        return "\n".join(head + [line(row) for row in self.rows] + notes) + "\n"

    def csv(self) -> str:
        out = io.StringIO()
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(self.raw_columns or self.columns)
        writer.writerows(self.raw if self.raw is not None else self.rows)
        return out.getvalue()

    def save(self, folder: Path) -> None:
        """Write NAME.md and NAME.csv into `folder`."""
        for suffix, text in ((".md", self.markdown()), (".csv", self.csv())):
            with atomic(folder / f"{self.name}{suffix}") as t:
                t.write_text(text, encoding="utf-8")


def number(value: Any, digits: int = 3) -> str:
    """A number as printed text; a dash for null and NaN."""
    if value is None or (isinstance(value, float) and value != value):
        return DASH
    return f"{value:.{digits}f}" if isinstance(value, float) else str(value)


def results(summary: Mapping[str, Any], notes: Sequence[tuple[str, str]] = ()) -> Table:
    """Every metric of every method, with the definitions as notes, and `notes` below them."""
    methods = summary["methods"]
    names = order(list(methods))
    columns = ["method"] + [k for m in METRICS for k in (m.key, f"{m.ci}_low", f"{m.ci}_high")]
    raw = []
    for name in names:
        values: list[Any] = [name]
        for m in METRICS:
            values += [methods[name].get(m.key), *(methods[name].get(m.ci) or (None, None))]
        raw.append(values)
    used = [i for i, c in enumerate(columns) if c[-4:] not in ("_low", "high") or any(r[i] is not None for r in raw)]
    return Table(
        "results",
        "Results",
        ["Method", *(m.title for m in METRICS)],
        [[name, *(m.text(methods[name]) for m in METRICS)] for name in names],
        [*((m.title, m.definition) for m in METRICS), *notes],
        raw_columns=[columns[i] for i in used],
        raw=[[r[i] for i in used] for r in raw],
    )


def render_table(summary: Mapping[str, Any]) -> RichTable:
    """The results as a terminal table that fits 80 columns: metrics down, methods across.

    More than `ACROSS` methods go down instead, with the `MAIN` metrics alone.
    """
    from rich.table import Table as RichTable

    methods = summary["methods"]
    names = order(list(methods))
    table = RichTable(title="Results", title_justify="left")
    table.add_column("", overflow="fold")
    if len(names) > ACROSS:
        main = [BY_KEY[key] for key in MAIN]
        for metric in main:
            table.add_column(metric.title.removesuffix(" (steps)"), justify="right", no_wrap=True)
        for name in names:
            table.add_row(name, *(metric.text(methods[name]) for metric in main))
        return table
    for name in names:
        table.add_column(name, justify="right")
    for metric in METRICS:
        cells = [metric.text(methods[name]) for name in names]
        if any(c != DASH for c in cells):
            table.add_row(metric.title, *cells)
    return table


def provenance(entries: Mapping[str, Any]) -> Table:
    """Where the numbers come from, nested entries flattened to dotted names."""
    rows: list[list[str]] = []

    def add(prefix: str, value: Any) -> None:
        if isinstance(value, Mapping):
            for key in sorted(value):
                add(f"{prefix}.{key}" if prefix else str(key), value[key])
        elif isinstance(value, list | tuple):
            rows.append([prefix, ", ".join(map(str, value))])
        else:
            rows.append([prefix, DASH if value is None else str(value)])

    add("", entries)
    return Table("provenance", "Provenance", ["What", "Value"], rows)


TRUTH_NOTES = [
    (
        "Truth",
        "Meaning computed from the text; probabilities from continuations by the same model, counted by meaning.",
    ),
    (
        "Clusters",
        "Pairs of samples of one context put together: F1 against the true pairs, and the adjusted Rand index.",
    ),
    ("Label noise", "Mean error of a count label of N samples, were every pair judged right."),
    ("Decision", "Mean acceptance, agreement on one uniform draw, and share of steps on the same side of one half."),
    (
        "Answers",
        "Cost of an answer in passes of the target, one of the draft counted by its share of the weights. The oracle "
        "is `semantic` with true probabilities.",
    ),
]


def truth(data: Mapping[str, Any]) -> Table | None:
    """Labels, probes and decisions against the truth (data/truth.json); None where there is none."""
    if not data:
        return None
    clusters = data["clusters"]
    rows = [["Clusters: F1 of pairs / Rand", f"{number(clusters['f1'])} / {number(clusters['rand'])}"]]
    noise = sorted((int(n), e) for n, e in data["label_noise"].items())
    rows += [[f"Label noise of the target at N = {n}", number(e)] for n, e in noise]
    for role, error in data["label_error"].items():
        rows.append([f"Labels under the {role}: MAE", number(error)])
    for role, m in data["probes"].items():
        text = f"Spearman {_spearman(m)}, MAE {number(m['mae'])}, ECE {number(m['ece'])}"
        rows.append([f"The {role}'s probe on the draft's samples", text])
    rows.append(["True mean acceptance", number(data["mean_true_acceptance"])])
    for name, d in data["decisions"].items():
        title = RULES.get(name, "min(1, p/q) of the labels")
        text = f"mean {number(d['mean'])}, agreement {number(d['agreement'])}, same side {_percent(d['same_verdict'])}"
        rows.append([f"Decision by {title}", text])
    end = data.get("end", {}).get("methods", {})
    for name, m in end.items():
        speedup = f", speed-up {m['speedup']:.2f}x" if "speedup" in m else ""  # over the target, where it was asked
        rows.append([f"Answers by {name}", f"Pass@1 {_percent(m['pass_at_1'])}, {m['passes']:.1f} passes{speedup}"])
    if {"target", "oracle", "semantic"} <= set(end):
        share = end["semantic"]["speedup"] / end["oracle"]["speedup"]
        rows.append(["Share of the oracle's speed-up that the probes reach", _percent(share)])
    return Table("truth", "Against the truth", ["What", "Value"], rows, TRUTH_NOTES)


def _percent(share: float) -> str:
    return f"{100 * share:.0f}%"


def _spearman(score: Mapping[str, Any]) -> str:
    ci = score.get("spearman_ci")
    return number(score["spearman"]) + (f" [{number(ci[0], 2)}, {number(ci[1], 2)}]" if ci else "")


def _best(scores: Mapping[str, Mapping[str, Any]], key: str, pick: Callable[..., tuple[float, str]] = max) -> str:
    """The best value of `key`, and whose it is."""
    value, name = pick((s[key], name) for name, s in scores.items())
    return f"{number(value)} ({BASELINES.get(name, name)})"


def _judged(view: Mapping[str, Any]) -> tuple[Mapping[str, Any], str]:
    """The rows that a probe is judged on, and their name: the draft's samples where they have labels."""
    return (view["draft"], "the draft's samples") if view.get("draft") else (view["all"], "all samples")


@dataclass
class Probes:
    """The probe section in words and tables; `warnings` is what a reader must not miss: (title, text)."""

    tables: list[Table] = field(default_factory=list)
    warnings: list[tuple[str, str]] = field(default_factory=list)
    text: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)

    @classmethod
    def of(cls, metrics: Mapping[str, Any] | None, rule: str = "ratio") -> Probes:
        """From data/probes/metrics.json, or None when no probe was trained; `rule` is the one in use."""
        out = cls()
        if metrics is None:
            out.missing.append("No probes were trained (stage train), or this is a bench alone: none to judge here.")
            return out
        for role in ROLES:
            if metrics.get(role):
                out._role(role, metrics[role])
            else:
                out.missing.append(f"The {role}'s probe was not trained.")
        if (metrics.get("decision") or {}).get("n"):
            out._decision(metrics["decision"], rule)
        else:
            out.missing.append("The decision cannot be judged: no draft sample has a label under both models.")
        return out

    def _role(self, role: str, m: Mapping[str, Any]) -> None:
        chosen = m["predictor"]
        rows, scores = [], {}
        for name, view in (m["candidates"] | m["baselines"]).items():
            score, where = _judged(view)
            scores[name] = score
            title = BASELINES.get(name, f"probe: {name}" + (" (chosen)" if name == chosen else ""))
            spearman = _spearman(score)
            rows.append([title, number(score["mae"]), spearman, number(score["brier"]), number(score["ece"])])
        mine = scores[chosen]
        title = f"The {role}'s probe on {where} ({mine['n']} samples of {mine['questions']} questions)"
        columns = ["Predictor", "MAE", "Spearman", "Brier", "ECE"]
        self.tables.append(Table(f"probe_{role}", title, columns, rows, PROBE_NOTES if role == ROLES[-1] else []))
        self.text.append(f"The {role}'s probe: {m['chosen_because']}.")
        if m["beats_baselines"] is False:
            others = {b: scores[b] for b in m["baselines"]}
            text = (
                f"Brier {number(mine['brier'])} against {_best(others, 'brier', min)}; "
                f"Spearman {_spearman(mine)} against {_best(others, 'spearman')}. "
                "What it says about a step may be chance."
            )
            self.warnings.append((f"The {role}'s probe does not beat its baselines.", text))

    def _decision(self, d: Mapping[str, Any], rule: str) -> None:
        rows = [["true labels", number(d["mean_true"]), "1", "1", "0%"]]
        for name, score in {**d["rules"], **d["baselines"]}.items():
            title = BASELINES.get(name) or RULES[name] + (" (in use)" if name == rule else "")
            rows.append(
                [
                    title,
                    number(score["mean_predicted"]),
                    _spearman(score),
                    number(score["agreement"]),
                    _percent(score["unsaid_share"]),
                ]
            )
        title = f"The decision to accept ({d['n']} draft samples of {d['questions']} questions)"
        columns = ["Rule", "Mean acceptance", "Spearman", "Agreement", "Never said"]
        self.tables.append(Table("decision", title, columns, rows, DECISION_NOTES))
        if d.get("unsaid_share_of_all") is not None:
            share = _percent(d["unsaid_share_of_all"])
            self.text.append(f"The target never said what {share} of the draft's samples mean.")
        mine = d["rules"].get(rule)
        if mine is None or mine["beats_baselines"] is None:
            self.text.append("Whether the decision beats its baselines cannot be told with these labels.")
        elif mine["beats_baselines"] is False:
            text = (
                f"{RULES[rule]}: agreement with the true rule {number(mine['agreement'])} against "
                f"{_best(d['baselines'], 'agreement')}; Spearman {_spearman(mine)} against "
                f"{_best(d['baselines'], 'spearman')}. "
                "A speed-up bought with it is not earned by the probes."
            )
            self.warnings.append(("The decision to accept does not beat its baselines.", text))

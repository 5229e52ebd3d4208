"""The report: from what the stages wrote, pages that need nothing else, and the same as tables and pictures.

The comparison must be there; everything about probes is optional, and a section whose input is missing says so. All
text that a model wrote reaches the page escaped. Reads nothing itself (`inputs.py`) and draws nothing (`pictures.py`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from semspec.bench import runner
from semspec.bench.metrics import BY_KEY, METRICS, Metric, order
from semspec.decoding.semantic import Semantic
from semspec.files import atomic
from semspec.report import pictures, problems, salvage, tables
from semspec.report.headline import headline
from semspec.report.inputs import Inputs, beside, comparison, machines, resampling

if TYPE_CHECKING:
    from semspec.schema import Settings

OUT = Path("results/report")


def cells(summary: Mapping[str, Any], name: str, metrics: Sequence[Metric]) -> list[tuple[str, str]]:
    """(value, interval) of a method's metrics."""
    found = [metric.text(summary["methods"][name]).partition(" [") for metric in metrics]
    return [(value, f"[{rest}" if rest else "") for value, _, rest in found]


def subtitle(settings: Settings | None, entries: Mapping[str, Any]) -> str:
    """Profile, seed and where the numbers come from, on one line, without a date; `settings` where they are known."""
    code = entries.get("code") or {}
    commit = str(code.get("commit") or "")[:10]

    def said(name: str) -> Any:
        return entries.get(name, getattr(settings, name, None))

    parts = [
        *(f"{name} {value}" for name in ("profile", "seed") if (value := said(name)) is not None),
        f"data {entries.get('dataset') or (settings.bench.dataset if settings else 'unknown')}",
        (f"commit {commit}" + (" with changes" if code.get("dirty") else "")) if commit else "no commit",
        f"parameters {str(entries.get('params_sha256') or '')[:10]}",
        " and ".join(machines(entries)),
    ]
    return " · ".join(parts)


def worked_problem(rows: Sequence[Mapping[str, Any]]) -> Mapping[str, Any] | None:
    """The answer that shows most: one by `semantic`, with both verdicts if any has them, with most judged steps."""
    traced = [r for r in rows if r.get("trace")]

    def worth(row: Mapping[str, Any]) -> tuple[bool, int, int, int]:
        verdicts = [s["accepted"] for s in row["trace"] if s.get("accepted") is not None]
        return row["method"] == Semantic.name, len(set(verdicts)), min(len(verdicts), 30), -len(row["trace"])

    return max(traced, key=worth) if traced else None


def build(
    settings: Settings,
    root: Path,
    results: Path | None = None,
    recorded: bool = True,
    others: Sequence[Path] = (),
) -> Path:
    """Write results/report under `root` and return the path of its index.html.

    With `results`, a folder with results.jsonl and summary.json of any bench: write `results`/report from these
    alone; `recorded` says whether `settings` are those of that run. `others` are folders of further comparisons, which
    fill what is left of the paper's tables and nothing else.
    Raises `UserError` when a comparison has not been run.
    """
    from jinja2 import Environment, PackageLoader, StrictUndefined

    root = Path(root)
    known = settings if recorded else None
    inputs, out = Inputs.read(root, results, known), results / "report" if results else root / OUT
    methods = inputs.summary["methods"]
    names, entries = order(list(methods)), inputs.summary.get("provenance") or {}
    own = comparison(results or root / runner.BENCH, inputs.summary, known)
    draft, target = own.pair.split(" → ")
    runs = [own, *beside(own, others, root)]
    folder = out / "figures"

    probe = tables.Probes.of(inputs.metrics, settings.decide.rule)
    map_picture, map_missing = pictures.state_map(settings, inputs, folder)
    provenance, truth = tables.provenance(entries), tables.truth(inputs.truth)
    paper_tables, paper_figures, paper_missing = pictures.paper_section(runs, folder)
    theirs = [filled.table() for filled in paper_tables]
    how = resampling(known, inputs.summary)
    salvaged = salvage.table(inputs.rows, *how)
    everything = tables.results(inputs.summary, salvage.sentences(inputs.rows, *how))
    for table in (everything, salvaged, *probe.tables, *([truth] if truth else []), provenance, *theirs):
        table.save(out / "tables")

    environment = Environment(
        loader=PackageLoader("semspec.report", "."),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=False,
    )
    every = problems.collect(inputs.rows)
    shown = problems.write(every, names, out / "problems", environment.get_template("problem.html.j2"))
    html = environment.get_template("template.html.j2").render(
        draft=draft,
        target=target,
        alone=results is not None,
        problems=shown,
        n_problems=len(every),
        paper_tables=paper_tables,
        paper_figures=paper_figures,
        paper_missing=paper_missing,
        salvaged=salvaged,
        subtitle=subtitle(known, entries),
        headline=headline(methods),
        methods=names,
        many=len(names) > tables.ACROSS,
        main=[BY_KEY[key].title for key in tables.WIDE],
        main_rows=[(n, cells(inputs.summary, n, [BY_KEY[key] for key in tables.WIDE])) for n in names],
        result_rows=[(m.title, [cells(inputs.summary, n, [m])[0] for n in names]) for m in METRICS],
        definitions=[(m.title, m.definition) for m in METRICS],
        quality=pictures.quality(methods, names, folder),
        time_spent=pictures.time_spent(methods, names, folder),
        warnings=probe.warnings,
        probe_missing=probe.missing,
        probe_text=probe.text,
        probe_tables=probe.tables,
        probe_figures=pictures.probes(inputs, folder),
        state_map=map_picture,
        map_missing=map_missing,
        ratio=pictures.decisions(inputs.rows, settings.decide if recorded else None, folder),
        ratio_missing="No draft step was judged by p and q: none of the methods that ran does so.",
        worked=worked_problem(inputs.rows),
        provenance=provenance,
        truth=truth,
    )
    with atomic(out / "index.html") as t:
        t.write_text(html, encoding="utf-8")
    return out / "index.html"

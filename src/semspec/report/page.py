"""The report: reads what the stages wrote; writes pages that need nothing else, tables and figures.

The comparison must be there; everything about probes is optional, and a section whose input is missing says so. All
text that a model wrote reaches the page escaped. Defines no metric: bench.metrics computes them from the answers again,
so that a run made by an older version is shown by the definitions that stand beside its numbers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from semspec import config
from semspec.bench import runner
from semspec.bench.metrics import BY_KEY, METRICS, Metric, order, summarize
from semspec.decoding.semantic import Semantic
from semspec.errors import UserError
from semspec.files import atomic, read_json, read_parquet, read_safetensors
from semspec.probe import evaluation
from semspec.report import figures, paper, problems, published, salvage, tables
from semspec.report.headline import headline
from semspec.rules import in_words, ratio
from semspec.schema import Bench

if TYPE_CHECKING:
    import pandas as pd

    from semspec.schema import Settings

OUT = Path("results/report")
ROLES = tables.ROLES


@dataclass
class Picture:
    """A figure as the page shows it; `svg` is markup of ours, never model text."""

    title: str
    caption: str
    svg: str


def measured(folder: Path, settings: Settings | None) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Rows and summary of a finished comparison, its metrics computed from the rows by today's definitions.

    `settings` are those of the run, None where they are not known. Raises `UserError` where the folder holds no
    finished comparison, or rows that lack what a metric needs.
    """
    rows, summary = runner.read(folder)
    try:
        methods = summarize(rows, *resampling(settings, summary))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        path = folder / "results.jsonl"
        raise UserError(f"{path} holds rows without what every metric needs ({error}); run the bench again") from None
    for name in _judged_unpooled(rows):
        methods[name]["score_share"] = None
    return rows, summary | {"methods": methods}


def _judged_unpooled(rows: Sequence[Mapping[str, Any]]) -> set[str]:
    """Methods that judged by p and q, of a version that did not time the summing up of hidden states on its own."""
    judged = (r for r in rows if any(s.get("p") is not None for s in r.get("trace") or ()))
    return {r["method"] for r in judged if "pool" not in r["phases"]}


def resampling(settings: Settings | None, summary: Mapping[str, Any]) -> tuple[int, int]:
    """(resamples, seed) of a run's confidence intervals; the defaults where they are not known."""
    if settings is not None:
        return settings.bench.bootstrap, settings.seed
    return Bench().bootstrap, int((summary.get("provenance") or {}).get("seed") or 0)


@dataclass
class Inputs:
    """Everything the report reads; None where a stage has not run."""

    rows: list[dict[str, Any]]
    summary: dict[str, Any]
    metrics: dict[str, Any] | None
    predictions: pd.DataFrame | None
    labels: pd.DataFrame | None
    samples: pd.DataFrame | None
    hidden: Path | None
    truth: dict[str, Any]

    @classmethod
    def read(cls, root: Path, results: Path | None = None, settings: Settings | None = None) -> Inputs:
        """Of the project in `root`, or of the folder `results` of a bench alone; `settings` are those of its run."""

        def optional(name: str, reader: Any) -> Any:
            return reader(root / name) if results is None and (root / name).exists() else None

        rows, summary = measured(results or root / runner.BENCH, settings)
        return cls(
            rows=rows,
            summary=summary,
            metrics=optional("data/probes/metrics.json", read_json),
            predictions=optional("data/probes/predictions.parquet", read_parquet),
            labels=optional("data/labels.parquet", read_parquet),
            samples=optional("data/samples/samples.parquet", read_parquet),
            hidden=optional("data/samples/target.safetensors", lambda path: path),
            truth=optional("data/truth.json", read_json) or {},
        )


def cells(summary: Mapping[str, Any], name: str, metrics: Sequence[Metric]) -> list[tuple[str, str]]:
    """(value, interval) of a method's metrics."""
    found = [metric.text(summary["methods"][name]).partition(" [") for metric in metrics]
    return [(value, f"[{rest}" if rest else "") for value, _, rest in found]


def machines(entries: Mapping[str, Any]) -> list[str]:
    """What the answers were made on, each once."""
    places = dict.fromkeys(
        place.partition(", cores")[0] for place in entries.get(runner.PLACE) or {} if place != "unknown"
    )
    machine = entries.get("machine") or {}
    return list(places) or [str(machine.get("gpu") or machine.get("cpu") or "unknown machine")]


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


def judged_ratios(rows: Sequence[Mapping[str, Any]]) -> tuple[np.ndarray, np.ndarray]:
    """p/q and the verdict of every draft step that `semantic` judged; of every judged one where it did not run."""
    own = [r for r in rows if r["method"] == Semantic.name] or rows
    steps = [s for r in own for s in r.get("trace") or [] if s.get("accepted") is not None]
    known = [s for s in steps if s.get("p") is not None and s.get("q")]
    return np.array([s["p"] / s["q"] for s in known]), np.array([s["accepted"] for s in known], dtype=bool)


def probe_figures(inputs: Inputs, folder: Path) -> list[Picture]:
    """A reliability plot of each probe, and the training curves of the networks."""
    out = []
    if inputs.predictions is not None:
        for role in ROLES:
            pair = inputs.predictions[[f"label_{role}", f"pred_{role}"]].dropna().to_numpy(float)
            if len(pair) < 2:
                continue
            svg = figures.save(figures.reliability(pair[:, 0], pair[:, 1], role), folder, f"reliability_{role}")
            caption = f"{len(pair)} samples, each predicted by a probe that saw no sample of its question."
            out.append(Picture(f"Reliability of the {role}'s probe", caption, svg))
        out += _tradeoff(inputs.predictions, folder)
    histories = {r: h for r in ROLES if (h := ((inputs.metrics or {}).get(r) or {}).get("history"))}
    if histories:
        svg = figures.save(figures.training(histories), folder, "training")
        caption = "Squared error after each epoch, mean over the folds still training, whichever predictor won."
        out.append(Picture("Training of the networks", caption, svg))
    return out


def _tradeoff(predictions: pd.DataFrame, folder: Path) -> list[Picture]:
    """What each rule's score buys as a threshold moves over it; nothing without labels under both models."""
    table = predictions[predictions["author"] == "draft"].dropna(subset=["label_target", "label_draft"])
    if len(table) < 5:
        return []
    p, q, label = (table[c].to_numpy(float) for c in ("pred_target", "pred_draft", "label_target"))
    scores = {"p / q": p / q, "p alone": p}
    if "pred_joint" in table:
        scores["joint predictor"] = table["pred_joint"].to_numpy(float)
    truth = ratio(label, table["label_draft"].to_numpy(float))
    curves = {title: evaluation.tradeoff(score, label) for title, score in scores.items()}
    figure = figures.tradeoff(curves, float(truth.mean()), float((label == 0).mean()))
    caption = (
        f"{len(table)} draft samples, the best-scored accepted first (decide.threshold moves along a line). "
        "Lower is better: fewer accepted steps whose meaning the target produced in none of its samples."
    )
    return [Picture("What a rule accepts", caption, figures.save(figure, folder, "tradeoff"))]


def evenly(label: np.ndarray, most: int, seed: int) -> tuple[np.ndarray, int]:
    """Places of samples drawn from each 0.1 interval of `label` ([n], in [0, 1]) alike, in order, and how many of each
    at most (the paper's Figure 2).

    That is what the middle one of the intervals that are not empty has, and no more than `most` in all; an interval
    with fewer gives what it has.
    """
    interval = np.clip(np.floor(10 * label + 1e-9), 0, 9).astype(int)
    sizes = np.bincount(interval, minlength=10)
    share = max(1, min(int(np.median(sizes[sizes > 0])), most // int((sizes > 0).sum())))
    rng = np.random.default_rng(seed)
    each = [rng.permutation(np.flatnonzero(interval == i))[:share] for i in range(10)]
    return np.sort(np.concatenate(each)), share


def state_map(settings: Settings, inputs: Inputs, folder: Path) -> tuple[Picture | None, str]:
    """The map of the target's hidden states, or None and what is missing."""
    from semspec.probe.features import choose_layers

    if inputs.hidden is None or inputs.samples is None or inputs.labels is None:
        return None, "No map: hidden states or labels are missing (stages sample and cluster)."
    table = inputs.samples[["sample_id"]].reset_index(names="row")
    table = table.merge(inputs.labels, on="sample_id").dropna(subset=["p_target"])
    if len(table) < 3:
        return None, f"No map: only {len(table)} samples have a label under the target."
    label = table["p_target"].to_numpy(float)
    drawn, share = evenly(label, settings.report.max_points, settings.seed)
    table = table.iloc[drawn]
    hidden = read_safetensors(inputs.hidden)["hidden"]
    layer = choose_layers(settings.train.layers_of("target"), hidden.shape[1])[-1]
    points, axis = figures.project(hidden[table["row"].to_numpy(), layer], settings.seed, settings.report.projection)
    figure = figures.state_map(points, table["p_target"].to_numpy(float), table["author"].tolist(), axis)
    how = {"UMAP": "UMAP on at most 50 principal components", "PCA": "the first two principal components"}[axis]
    caption = (
        f"{len(table)} of {len(label)} samples as the target reads them, drawn at random, at most {share} from each "
        f"tenth of semantic probability: mean state of layer {layer}, by {how}. Distances between far groups mean "
        "little."
    )
    return Picture("Map of hidden states", caption, figures.save(figure, folder, "hidden_states")), ""


def paper_section(runs: Sequence[paper.Run], folder: Path) -> tuple[list[paper.Filled], list[Picture], list[str]]:
    """The paper's tables with ours in them, its Figures 3 to 5, and what is missing of these."""
    filled = {layout.name: paper.fill(layout, runs) for layout in published.LAYOUTS}
    figure = figures.paper_plane(paper.plane(filled[published.TABLE_4.name]), paper.METHODS)
    several = " {} may hold several runs: see the notes below {}." if len(runs) > 1 else ""
    caption = (
        "Drawn from the numbers of Table 4, the paper's in its own rows of panels. Each panel has its own scales: "
        "seconds on different machines do not compare." + several.format("A panel of ours", "Table 4")
    )
    svg = figures.save(figure, folder, "paper_figure3")
    shown, missing = [Picture("Figure 3: Pass@1 against latency", caption, svg)], []
    for layout in (published.FIGURE_4, published.FIGURE_5):
        title = layout.title
        lines = {group: rows for group, rows in filled[layout.name].measured.items() if len(rows) > 1}
        if not lines:
            missing.append(f"{title}: no picture; {paper.NOT_RUN} with two of them on one problem set.")
            continue
        picture = figures.save(figures.by_setting(layout.rows, lines), folder, layout.name)
        caption = (
            "Ours alone, from the numbers of the table above; bars are 95% intervals over problems. The paper prints "
            "no numbers for its picture." + several.format("A line", "the table")
        )
        shown.append(Picture(title, caption, picture))
    return list(filled.values()), shown, missing


def comparison(folder: Path, summary: Mapping[str, Any], settings: Settings | None) -> paper.Run:
    """A finished comparison for the paper's tables; `settings` are those of its run, where they are known."""
    entries = summary.get("provenance") or {}
    known = {"dataset": settings.bench.dataset, **settings.models.model_dump()} if settings else {}
    draft, target, dataset = (str(entries.get(k) or known.get(k) or "unknown") for k in (*ROLES, "dataset"))
    how = [f"{max(m['n'] for m in summary['methods'].values())} problems"]
    if settings is None:
        how.append(f"its {config.PARAMS} is not there, so no row that depends on a setting")
    else:
        how.append(f"temperature {t:g}" if (t := settings.bench.temperature) else "greedy")
        how.append(f"at most {settings.bench.max_tokens} tokens")
    weights = dict.fromkeys(str(entries[k]) for r in ROLES if (k := f"{r}_weights") in entries)
    commit = str((entries.get("code") or {}).get("commit") or "")[:10]
    how += [*(["/".join(weights)] if weights else []), *machines(entries), *([f"commit {commit}"] if commit else [])]
    pair, trained = f"{draft} → {target}", trained_on(entries)
    return paper.Run(str(folder), pair, dataset, summary["methods"], settings, ", ".join(how), trained)


def trained_on(entries: Mapping[str, Any]) -> dict[str, str]:
    """{method: the problem set that its probes were trained on}, as a run's provenance has it; {} of an older run."""
    probes = entries.get("probes")
    if not isinstance(probes, Mapping):
        return {}
    known = {name: p.get("domain") for name, p in probes.items() if isinstance(p, Mapping)}
    return {str(name): str(domain) for name, domain in known.items() if domain}


def beside(own: paper.Run, folders: Sequence[Path], root: Path) -> list[paper.Run]:
    """Other finished comparisons, each once; `UserError` where one is none, or not of this pair of models."""
    found, seen = [], {Path(own.folder).resolve()}
    for folder in folders:
        if folder.resolve() in seen:
            continue
        seen.add(folder.resolve())
        settings = runner.recorded(folder, root)
        run = comparison(folder, measured(folder, settings)[1], settings)
        if run.pair != own.pair:
            raise UserError(f"{folder} compares methods on {run.pair}, this report is on {own.pair}; leave it out")
        found.append(run)
    return found


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
    pictures = out / "figures"

    quality = Picture(
        "Pass@1 against latency",
        "One point per method; bars are 95% intervals over problems. Up and to the left is better. Dashed: the Pareto "
        "front; paler: another method is at least as good in both and better in one.",
        figures.save(figures.quality_speed(methods, names), pictures, "quality_speed"),
    )
    time_spent = Picture(
        "Where the time goes",
        "Mean over problems. Scoring is what lies between the summed states and the verdict; where summing them was "
        "not timed on its own it is part of drafting and reading.",
        figures.save(
            figures.phases({n: methods[n]["phases"] for n in names}, {n: methods[n]["latency_s"] for n in names}),
            pictures,
            "phases",
        ),
    )
    ratio = None
    values, accepted = judged_ratios(inputs.rows)
    if len(values):
        ratio = Picture(
            "p / q of drafted steps",
            f"{len(values)} judged steps{f'; {in_words(settings.decide)}' if recorded else ''}. Ratios above 2 count "
            "as 2. The rule does not keep the target's distribution.",
            figures.save(figures.ratios(values, accepted), pictures, "ratios"),
        )
    probe = tables.Probes.of(inputs.metrics, settings.decide.rule)
    map_picture, map_missing = state_map(settings, inputs, pictures)
    provenance, truth = tables.provenance(entries), tables.truth(inputs.truth)
    paper_tables, paper_figures, paper_missing = paper_section(runs, pictures)
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
        quality=quality,
        time_spent=time_spent,
        warnings=probe.warnings,
        probe_missing=probe.missing,
        probe_text=probe.text,
        probe_tables=probe.tables,
        probe_figures=probe_figures(inputs, pictures),
        state_map=map_picture,
        map_missing=map_missing,
        ratio=ratio,
        ratio_missing="No draft step was judged by p and q: none of the methods that ran does so.",
        worked=worked_problem(inputs.rows),
        provenance=provenance,
        truth=truth,
    )
    with atomic(out / "index.html") as t:
        t.write_text(html, encoding="utf-8")
    return out / "index.html"

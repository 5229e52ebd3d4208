"""What a report is made from: a finished comparison, what the stages left beside it, further comparisons.

Defines no metric: bench.metrics computes them from the answers again, so that a run made by an older version is shown
by the definitions that stand beside its numbers. Knows nothing of pages and pictures.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from semspec import config
from semspec.bench import runner
from semspec.bench.metrics import summarize
from semspec.bench.rows import Shown, check
from semspec.errors import UserError
from semspec.files import read_json, read_parquet
from semspec.report import paper, tables
from semspec.schema import Bench

if TYPE_CHECKING:
    import pandas as pd

    from semspec.schema import Settings


def measured(folder: Path, settings: Settings | None) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Rows and summary of a finished comparison, its metrics computed from the rows by today's definitions.

    `settings` are those of the run, None where they are not known. Raises `UserError` where the folder holds no
    finished comparison, or rows that lack what a metric needs.
    """
    rows, summary = runner.read(folder)
    check(rows, Shown, folder / "results.jsonl")
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


def machines(entries: Mapping[str, Any]) -> list[str]:
    """What the answers were made on, each once."""
    places = dict.fromkeys(
        place.partition(", cores")[0] for place in entries.get(runner.PLACE) or {} if place != "unknown"
    )
    machine = entries.get("machine") or {}
    return list(places) or [str(machine.get("gpu") or machine.get("cpu") or "unknown machine")]


def comparison(folder: Path, summary: Mapping[str, Any], settings: Settings | None) -> paper.Run:
    """A finished comparison for the paper's tables; `settings` are those of its run, where they are known."""
    entries = summary.get("provenance") or {}
    known = {"dataset": settings.bench.dataset, **settings.models.model_dump()} if settings else {}
    draft, target, dataset = (str(entries.get(k) or known.get(k) or "unknown") for k in (*tables.ROLES, "dataset"))
    how = [f"{max(m['n'] for m in summary['methods'].values())} problems"]
    if settings is None:
        how.append(f"its {config.PARAMS} is not there, so no row that depends on a setting")
    else:
        how.append(f"temperature {t:g}" if (t := settings.bench.temperature) else "greedy")
        how.append(f"at most {settings.bench.max_tokens} tokens")
    weights = dict.fromkeys(str(entries[k]) for r in tables.ROLES if (k := f"{r}_weights") in entries)
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

"""The hand-off: what a server needs beside the language models, as one folder of safetensors and JSON.

    probes/{draft,target,joint}/...    bundle.json    evaluation.json    model_card.md

bundle.json says which models, which layers, how to decode, and how good it was; evaluation.json has the answers behind
that, problem by problem, for the comparison with another bundle. No pickle, no weights of a language model, no path of
this machine.
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import semspec.provenance
from semspec import files, rules
from semspec.engine import number_format
from semspec.errors import UserError
from semspec.tracking import card, evaluation
from semspec.tracking.mlflow_log import split_history

if TYPE_CHECKING:
    from semspec.schema import Settings

FORMAT = 1
ROLES = ("draft", "target")
PROBE_FILES = ("config.json", "probe.safetensors")
DATA = ("data/contexts.parquet", "data/samples/samples.parquet", "data/labels.parquet")


def _metrics(root: Path) -> dict[str, Any]:
    """Probe metrics without their histories, and the comparison with its intervals; what there is of them."""
    out: dict[str, Any] = {}
    probes, bench = root / "data/probes/metrics.json", root / "results/bench/summary.json"
    if probes.exists():
        out["probes"], _ = split_history(files.read_json(probes))
    if bench.exists():
        out["bench"] = files.read_json(bench).get("methods", {})
    return out


def make_bundle(root: Path, settings: Settings, folder: Path) -> dict[str, Any]:
    """Write the bundle into `folder` (made, or replaced file by file); returns what bundle.json holds.

    Raises `UserError` when the probes or the models' descriptions are missing.
    """
    probes = root / "data/probes"
    trained = {r: files.read_json(files.present(probes / r / "config.json")) for r in ROLES}
    parts = [probes / part for part in (*ROLES, "joint")]  # the joint one has folders of its own
    for source in sorted(p for part in parts for p in part.rglob("*") if p.name in PROBE_FILES):
        with files.atomic(folder / "probes" / source.relative_to(probes)) as temporary:
            shutil.copyfile(source, temporary)
    models = {role: files.read_json(root / f"data/models/{role}.json") for role in ROLES}
    bundle = {
        "format": FORMAT,
        "semspec": semspec.provenance.versions()["semspec"],
        "models": {role: {k: v for k, v in d.items() if k != "source"} for role, d in models.items()},
        "layers": {role: config["layers"] for role, config in trained.items()},
        "decoding": {
            **settings.decide.model_dump(),
            "rule_in_words": rules.in_words(settings.decide),
            "gamma": settings.bench.gamma,
            "temperature": settings.bench.temperature,
            "top_p": settings.bench.top_p,
            "split": settings.text.split,
            "max_step_tokens": settings.text.max_step_tokens,
            "system": settings.text.system,
            "weights": settings.engine.weights,
            "number_formats": {role: number_format(settings.engine.of(role)) for role in ROLES},
        },
        "metrics": _metrics(root),
        "files": {p.relative_to(folder).as_posix(): files.sha256(p) for p in probe_files(folder)},
        "data": {path: files.sha256(root / path) for path in DATA if (root / path).exists()},
        "params_sha256": semspec.provenance.params_sha256(settings),
    }
    files.write_json(folder / "bundle.json", bundle)
    measured = evaluation.measure(root, settings)
    if measured is not None:
        files.write_json(folder / evaluation.FILE, measured)
    with files.atomic(folder / card.FILE) as temporary:
        weights = trained["target"].get("trained_on", {}).get("weights", settings.engine.weights)
        temporary.write_text(card.write(bundle, measured, settings, weights), encoding="utf-8")
    return bundle


def probe_files(folder: Path) -> list[Path]:
    """Every file below probes/ of the bundle in `folder`, in order."""
    return sorted(p for p in (folder / "probes").rglob("*") if p.name in PROBE_FILES)


def check(folder: Path, bundle: Mapping[str, Any], name: str) -> None:
    """Compare the probes in `folder` with bundle.json; `UserError` that says which file of `name` differs."""
    for file, wanted in bundle.get("files", {}).items():
        found = files.sha256(folder / file) if (folder / file).is_file() else "missing"
        if found != wanted:
            raise UserError(
                f"{name} is spoiled: its {file} has SHA-256 {found[:16]}, not {wanted[:16]}; take another version "
                "(`semspec registry list`), or register the probes again with `semspec run`"
            )


def md5(folder: Path) -> str:
    """MD5 over the names and bytes of a bundle's files: equal bundles, equal digest."""
    digest = hashlib.md5(usedforsecurity=False)
    for path in sorted(p for p in folder.rglob("*") if p.is_file()):
        digest.update(f"{path.relative_to(folder).as_posix()}\0{files.sha256(path)}\n".encode())
    return digest.hexdigest()

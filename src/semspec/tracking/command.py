"""`semspec registry list | promote | rollback`: the registry, for people and for scripts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from semspec.errors import UserError
from semspec.schema import Settings
from semspec.tracking import mlflow_log


def run(action: str, version: str | None, settings: Settings, root: Path, force: bool, as_json: bool) -> None:
    """Carry out one action and print what came of it; `UserError` when it can't be, or the gate refuses."""
    from semspec.tracking.registry import Registry, answering

    uri = mlflow_log.uri(root, settings)
    mlflow_log.check_database(uri)
    with answering(uri):
        registry = Registry(root, settings)
        if action == "list":
            _list(registry, as_json)
            return
        if not registry.exists():
            raise UserError(f"nothing is registered as {registry.name}; `semspec run` registers the probes it trains")
        outcome = registry.rollback() if action == "rollback" else registry.promote(_chosen(registry, version), force)
    if as_json:
        print(json.dumps(outcome.__dict__, sort_keys=True))
    if not outcome.champion:
        raise UserError(f"{outcome}. `--force` promotes it all the same")
    if not as_json:
        print(outcome)


def _chosen(registry: Any, version: str | None) -> str:
    """A version's number from what was asked for: a number, an alias, or nothing for the challenger."""
    from semspec.tracking.registry import CHALLENGER

    versions = {row["version"] for row in registry.versions()}
    asked = version or CHALLENGER
    found = registry.aliases().get(asked.removeprefix("@"), asked)
    if found in versions:
        return str(found)
    if version is None:
        raise UserError(f"{registry.name} has no challenger; name a version (`semspec registry list`)")
    raise UserError(f"{registry.name} has no version or alias '{version}'; see `semspec registry list`")


def _list(registry: Any, as_json: bool) -> None:
    rows = registry.versions()
    if as_json:
        print(json.dumps({"name": registry.name, "versions": rows}, sort_keys=True))
        return
    if not rows:
        print(f"nothing is registered as {registry.name}; `semspec run` registers the probes it trains")
        return
    from rich.console import Console
    from rich.table import Table

    table = Table(title=registry.name, title_justify="left")
    for title in ("version", "alias", "Pass@1", "gate"):
        table.add_column(title)
    for row in rows:
        score = "–" if row["pass_at_1"] is None else f"{100 * row['pass_at_1']:.0f}%"
        table.add_row(row["version"], ", ".join(row["aliases"]), score, row["gate"] or "")
    Console().print(table)

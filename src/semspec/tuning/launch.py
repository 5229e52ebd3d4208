"""What starts a search: `semspec tune`, and the pieces that its Prefect flow is made of.

Every step is a process of its own with its own process group, so that a cancelled flow leaves none behind and several
workers share one machine. Knows processes and the pipeline's rules for them; knows nothing of what a step computes.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

from semspec import pipeline
from semspec.commands import StageFailed, run_command
from semspec.errors import UserError
from semspec.process import cancellable
from semspec.quiet import quiet
from semspec.schema import Settings

SAMPLED = {"models", "contexts", "sample", "cluster"}
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")


def check(root: Path, name: str) -> None:
    """`UserError` where the name is no folder's, or samples and labels are not those of params.yaml."""
    if not _NAME.fullmatch(name):
        raise UserError(f"the name {name!r}: use letters, digits, '.', '_' and '-'")
    late = [s for s in pipeline.stale(root) if s in SAMPLED]
    if late:
        raise UserError(f"the samples and labels are out of date ({', '.join(late)}); run `semspec run` first")


def run_step(root: Path, step: str, name: str, *more: int, log: Any = None, live: bool = True) -> None:
    """Run one step of the search `name`; output and errors as `pipeline.run_stage` treats a stage's."""
    command = [sys.executable, "-m", "semspec.tuning", step, name, *map(str, more)]
    with cancellable(live):
        code, held = run_command(command, root, log, live)
    if code == 2 and held:
        raise UserError(held[-1].removeprefix("error: "))
    if code != 0:
        alone = " ".join(["python -m semspec.tuning", step, name, *map(str, more)])
        raise StageFailed(f"step '{step}' failed (exit code {code})", alone)


def conclusion(root: Path, name: str, write: bool) -> str:
    """The table of a search, its winner and the difference that it makes to params.yaml; made only if `write`.

    What an earlier winner of the search has changed, and this one doesn't, is as it was when the search began.
    """
    from semspec import files
    from semspec.tuning.command import apply
    from semspec.tuning.search import APPLIED, applied, folder, winner_of

    out = folder(root, name)
    text = (out / "table.md").read_text(encoding="utf-8")
    winner = winner_of(root, name)
    if winner is None:
        return f"{text}\nno trial within the limits does better than params.yaml; nothing to apply\n"
    begun = files.read_json(out / "settings.json")
    sections = (dotted.split(".") for dotted in applied(root, name))
    before = {f"{section}.{own}": begun[section][own] for section, own in sections}
    difference = apply(root, before | winner["overrides"], write)
    if write:
        files.write_json(out / APPLIED, winner["overrides"])
    if not difference:
        return f"{text}\nparams.yaml has the winner (trial {winner['number']}) already\n"
    done = "written to params.yaml; `dvc repro` or `semspec run` now reproduces it" if write else "not written: --apply"
    return f"{text}\nwinner: trial {winner['number']} ({done})\n\n{difference}"


def run(root: Path, name: str, settings: Settings, write: bool) -> int:
    """`semspec tune`: search, and say what was found. Returns the exit code; `UserError` for the user's mistakes."""
    from semspec.tuning import trees
    from semspec.tuning.search import begin, folder

    root = root.resolve()
    quiet(root)
    pipeline.check_repository(root)
    check(root, name)
    trees.questions(settings)  # a mistake here must not use up the name
    chosen = settings.tune.model_dump(mode="json").items()

    def call() -> None:
        flow = pipeline.load_flow(root, "tune")
        flow.tune(flow.Request(name=name, apply=write, overrides=[f"tune.{k}={json.dumps(v)}" for k, v in chosen]))

    with pipeline.alone(root):  # a run would change what the trials are judged on
        begin(root, name, settings)
        code = pipeline.run_flow(call)
    if code == 0:
        out = folder(Path("."), name)
        print(f"\npictures {out}/*.png, figures {out / 'results.json'}")
        print(f"trials   optuna-dashboard {out / 'journal.log'}")
    return code

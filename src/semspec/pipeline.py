"""The whole pipeline: what `semspec run` calls, and what its Prefect flow is made of.

DVC decides which stages are out of date and is the only cache; Prefect (flows/pipeline.py) shows, logs and
cancels. When nothing is out of date no Prefect server is started. This module knows the graph in dvc.yaml,
not what a stage computes.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import logging
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from filelock import FileLock, Timeout
from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from semspec import config, preflight
from semspec.commands import TRACKED, Log, StageFailed, environment, run_command
from semspec.errors import UserError
from semspec.files import read_json
from semspec.process import RUN, cancellable, cancelled, end_groups, end_orphans, interrupted, leave
from semspec.quiet import quiet

FLOWS = Path("flows")
SERVER = "prefect.server.api.server:create_app"  # in the command of a server that Prefect starts for a run
SUMMARY = Path("results") / "bench" / "summary.json"
REPORT = Path("results") / "report" / "index.html"
SHOWN = ("pass_at_1", "latency_s", "tps", "speedup", "target_ratio", "acceptance_rate", "n")  # of the report's metrics
_BUSY = re.compile(r"\(PID (\d+)\)")
_EXITED = re.compile(r"exited with (-?\d+)\s*$")
_NOISE = re.compile(  # what dvc says around a stage's own output
    r"(Running stage |> |Generating lock file |Updating lock file |To track the changes with git|\tgit add "
    r"|To enable auto staging|\tdvc config |Use `dvc push`|Stage '.*' didn't change|Data and pipelines are up to date"
    r"|WARNING: Process '.*RWLock-file|\s*$)"
)


def graph(root: Path) -> dict[str, set[str]]:
    """Stage -> the stages it directly needs, in an order in which they can run."""
    try:
        stages = YAML(typ="safe").load(root / "dvc.yaml")["stages"]
    except (OSError, YAMLError, KeyError, TypeError):
        raise UserError("dvc.yaml can't be read; restore it with `git checkout dvc.yaml`") from None
    writer: dict[str, str] = {}
    for name, stage in stages.items():
        for out in [*stage.get("outs", []), *stage.get("metrics", [])]:
            writer[out if isinstance(out, str) else next(iter(out))] = name
    needs = {name: {writer[d] for d in stage.get("deps", []) if d in writer} for name, stage in stages.items()}
    ordered: dict[str, set[str]] = {}
    while len(ordered) < len(needs):
        ready = [n for n in needs if n not in ordered and needs[n] <= ordered.keys()]
        if not ready:
            raise UserError("dvc.yaml has a cycle; restore it with `git checkout dvc.yaml`")
        ordered |= {n: needs[n] for n in ready}
    return ordered


def check_repository(root: Path) -> None:
    """`UserError` unless `root` is the project in a state that DVC can work in."""
    root = root.resolve()
    missing = [n for n in (".dvc", "dvc.yaml") if not (root / n).exists()]
    if missing:
        raise UserError(f"no {missing[0]} in {root}; run `semspec run` in the cloned repository")
    if not any((folder / ".git").exists() for folder in (root, *root.parents)):
        local = root / ".dvc" / "config.local"
        if not (local.exists() and "no_scm" in local.read_text(encoding="utf-8")):
            raise UserError("this copy has no git history; run `dvc config --local core.no_scm true` once")


def _dvc_error(text: str) -> UserError:
    busy = _BUSY.search(text)
    if busy:
        pid = busy.group(1)
        return UserError(
            f"another run is working here (process {pid}); wait for it, or end it with `kill -TERM -- -{pid}`"
        )
    if "Unable to acquire lock" in text:
        return UserError("another dvc command is working here; wait for it and run again")
    lines = [line for line in text.splitlines() if line.strip()]
    # an invalid dvc.yaml: DVC draws the place over several lines, in colours
    plain = re.sub(r"\x1b\[[0-9;]*m", "", " ".join(lines[:2])).removeprefix("ERROR: ")
    return UserError(f"dvc: {plain or 'failed without a message'}")


def stale(root: Path) -> list[str]:
    """Stages that are out of date or follow one that is, in running order.

    Raises `UserError` when another run holds the project or dvc.yaml can't be read.
    """
    done = subprocess.run(
        [sys.executable, "-m", "dvc", "status", "--json"],
        cwd=root,
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise _dvc_error(done.stderr or done.stdout)
    changed = set(json.loads(done.stdout))
    needs = graph(root)
    todo: list[str] = []
    for name in needs:
        if name in changed or needs[name] & set(todo):
            todo.append(name)
    return todo


def run_stage(root: Path, name: str, log: Log | None = None, live: bool = True, bar: Log | None = None) -> None:
    """Run one DVC stage; its output goes to the terminal (`live`) and, line by line, to `log(line)`; bars to `bar`.

    Raises `UserError` with the stage's own line for a mistake of the user's, `StageFailed` for anything else.
    Any exception, cancellation too, ends the stage with all its processes.
    """
    command = [sys.executable, "-m", "dvc", "repro", "--single-item", name]
    with cancellable(live):
        code, held = run_command(command, root, log, live, bar, lambda line: not _NOISE.match(line), {TRACKED: "1"})
    if code == 0:
        return
    ours = [line.removeprefix("error: ") for line in held if line.startswith("error: ")]
    theirs = "\n".join(line for line in held if line.startswith("ERROR: "))
    exited = _EXITED.search(theirs)
    if exited is None:  # dvc never got to run it
        raise _dvc_error(theirs)
    if exited.group(1) == "2" and ours:
        raise UserError(ours[-1])
    said = f": {ours[-1]}" if ours else ""
    raise StageFailed(f"stage '{name}' failed (exit code {exited.group(1)}){said}", f"semspec stage {name}")


def is_cached(root: Path, name: str) -> bool:
    """Has DVC kept the outputs of this very stage, so that it need not run again?"""
    from dvc.repo import Repo
    from dvc.stage.cache import RunCacheNotFoundError

    logging.getLogger("dvc").setLevel(logging.ERROR)  # it would say that it restores them
    # DVC reads the paths of a remembered stage from the folder it is called in
    with contextlib.chdir(root), Repo(".") as repo:
        stage = repo.stage.load_one("dvc.yaml", name)
        stage.save_deps()  # look for today's inputs, not for those in dvc.lock ...
        for out in stage.outs:
            out.hash_info = type(out.hash_info)()  # ... whose outputs are not theirs
        try:
            repo.stage_cache.restore(stage, dry=True)
        except RunCacheNotFoundError:
            return False
    return True


def load_flow(root: Path, name: str = "pipeline") -> ModuleType:
    """flows/NAME.py of `root` as a module."""
    path = (root / FLOWS / f"{name}.py").resolve()
    if not path.exists():
        raise UserError(f"no {FLOWS / path.name} in {root.resolve()}; run `semspec` in the cloned repository")
    spec = importlib.util.spec_from_file_location(f"semspec_flow_{name}", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # pydantic looks the flow's parameter model up here
    spec.loader.exec_module(module)
    return module


def comparison(path: Path) -> list[dict[str, str]]:
    """The comparison in a summary.json, a row for each method, as text; empty when there is none."""
    from semspec.bench.metrics import BY_KEY, order

    try:
        methods = json.loads(path.read_text(encoding="utf-8"))["methods"]
        names = order(list(methods))
    except (OSError, ValueError, KeyError, TypeError):
        return []
    metrics = [BY_KEY[key] for key in SHOWN]
    return [{"method": name} | {m.title: m.text(methods[name]) for m in metrics} for name in names]


def results_table(root: Path) -> str:
    """`comparison` of the last run as a text table; empty when there is none."""
    found = comparison(root / SUMMARY)
    rows = [list(found[0]), *(list(row.values()) for row in found)] if found else []
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join("  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)).rstrip() for row in rows)


@contextlib.contextmanager
def alone(root: Path) -> Iterator[None]:
    """Hold the project against another run, from before its parameters are changed; a killed one holds nothing.

    The flow that `semspec run` or `semspec tune` calls takes the same lock once more.
    """
    path = root.resolve() / ".dvc/tmp/semspec.lock"
    path.parent.mkdir(parents=True, exist_ok=True)
    lock = FileLock(path, is_singleton=True, thread_local=False)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        raise UserError("another run is working here; wait for it, or end it where it was started") from None
    try:
        yield
    finally:
        lock.release()


def track(root: Path) -> None:
    """Record the state of the files in MLflow, register the probes, say what became of them; a failure is a warning."""
    from semspec import tracking

    settings = config.load(root)
    run_id = tracking.log_run(root, settings)
    outcome = tracking.register(root, settings, run_id) if run_id is not None else None
    if outcome is not None:
        print(f"registry: {outcome}", flush=True)


def run_flow(call: Callable[[], Any]) -> int:
    """Run a Prefect flow in this process; the exit code. Its console lines are left to its UI."""
    print("starting Prefect ...", file=sys.stderr, flush=True)
    end_orphans(SERVER, "PREFECT_HOME")
    os.environ[RUN] = str(os.getpid())
    os.environ.setdefault("PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL", "CRITICAL")
    cancelled.clear()
    before = signal.signal(signal.SIGTERM, lambda *_: _end())  # Prefect hands the signal on to whom it finds here
    try:
        call()
    except StageFailed as e:
        print(
            f"{e}; its own lines are above" + (f". Try it alone with `{e.alone}`" if e.alone else ""), file=sys.stderr
        )
        return 1
    except UserError:
        raise
    except BaseException as e:
        if cancelled or interrupted(e):
            _end()
            return 130
        if type(e).__module__.startswith("httpx") or "Failed to reach API" in str(e):
            where = os.environ.get("PREFECT_API_URL")
            what = f"no Prefect server answers at {where}; start it or unset PREFECT_API_URL" if where else ""
            raise UserError(what or "Prefect's own server stopped; what is done is kept, run again") from None
        raise
    finally:
        signal.signal(signal.SIGTERM, before)
    return 0


def _end() -> None:
    """End what runs and this process with it."""
    for timer in cancelled:
        timer.cancel()
    end_groups()
    leave()


def run_pipeline(root: Path, profile: str | None = None, overrides: Sequence[str] = ()) -> int:
    """`semspec run`: bring everything up to date, track it, print the comparison. Returns the exit code.

    Raises `UserError` for the user's mistakes (exit code 2).
    """
    root = root.resolve()
    quiet(root)
    check_repository(root)
    config.load(root)  # a file that is no YAML is better explained here than by DVC
    with alone(root):
        todo = stale(root)  # then: it refuses while `dvc repro` works, before that one's parameters are changed
        changed = config.apply(root, profile, overrides, preflight.check)
        for name in changed:
            print(f"params.yaml: {name} changed")
        if changed:
            todo = stale(root)
        settings = config.load(root)
        if todo:
            print(f"to do: {', '.join(todo)}", flush=True)

            def call() -> None:
                flow = load_flow(root)
                flow.pipeline(flow.Request(profile=profile or "current", overrides=list(overrides)))

            code = run_flow(call)
            if code != 0:
                return code
        else:
            track(root)  # what a killed run or another tracking server has missed; doing it twice changes nothing
            print("everything is up to date")
    print()
    print(results_table(root))
    print(f"\nreport   {REPORT}")
    print(f"results  {SUMMARY.parent / 'results.jsonl'}")
    from semspec.tracking.mlflow_log import seen_at

    print(f"runs     {seen_at(root, settings)}")
    if todo:
        from semspec import engine

        made_on = read_json(root / SUMMARY).get("provenance", {}).get("machine", {})
        hint = engine.faster("cuda" if made_on.get("gpu") else "cpu")  # to look for a GPU is seconds of imports
        if hint:
            print(f"speed    {hint}")
    return 0

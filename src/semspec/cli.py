"""The command line: what each verb does, and exit codes. Nothing heavy is imported until a verb runs.

Knows flags by their names alone; `arguments.py` has them.
Exit codes: 0 done; 2 the user's mistake (one `error:` line on stderr); 1 anything else; 130 interrupted.
"""

from __future__ import annotations

import argparse
import json
import os
import select
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from semspec import config, schema
from semspec.arguments import parser
from semspec.commands import TRACKED
from semspec.errors import UserError, in_a_line
from semspec.process import end_with_parent, unburden


def _overridden(args: argparse.Namespace, **more: Any) -> schema.Settings:
    """params.yaml with the `--set` values and the given `section.name` values on top, in memory only."""
    values = {dotted: value for dotted, value in more.items() if value is not None}
    return config.overridden(".", getattr(args, "set", []), values, "the command line")


def run(args: argparse.Namespace) -> int:
    from semspec.pipeline import run_pipeline

    return run_pipeline(Path("."), args.profile, args.set)


def stage(args: argparse.Namespace) -> int:
    from semspec.stages import STAGES

    if args.part and args.name not in ("sample", "bench"):
        raise UserError(f"--part divides the stages sample and bench; {args.name} is made in one piece")
    settings = config.load(".")
    STAGES[args.name](settings, Path("."), **({"part": args.part} if args.part else {}))
    if config.load(".") != settings:  # DVC would record this output as made with the new values
        raise UserError(f"params.yaml changed while '{args.name}' ran; run it again")
    if args.name == "report" and TRACKED not in os.environ:  # the last stage: a plain `dvc repro` is tracked too
        from semspec.tracking import log_run

        log_run(Path(".").resolve(), settings)
    return 0


def models(args: argparse.Namespace) -> int:
    from semspec.models import CATALOGUE, TRAINED, check_name, ensure, installed, pull, verify

    if args.action == "list":
        rows = [
            {
                "name": e.name,
                "installed": installed(e.name),
                "license": e.license,
                "description": e.description,
            }
            for e in CATALOGUE.values()
        ]
        small = "a tiny model of the small world; trained here by `semspec run --profile synthetic`"
        rows += [{"name": n, "installed": installed(n), "license": "", "description": small} for n in TRAINED]
        if args.json:
            print(json.dumps(rows))
        else:
            for row in rows:
                print(f"{'*' if row['installed'] else ' '} {row['name']:32}{row['license']:12}{row['description']}")
            print("* = on this machine. Any hub id (org/name) or local folder works too.")
        return 0
    names = list(dict.fromkeys(args.names)) or _models_of_params()
    if args.action == "pull":
        for name in names:
            print(f"{name}: {pull([name])[0] if name in CATALOGUE else ensure(name)}")
    else:
        for name in names:
            if name not in CATALOGUE:
                check_name(name)
                print(f"{name}: not in the catalogue, so there is nothing to compare its bytes with")
                continue
            verify(name)
            print(f"{name}: verified")
    return 0


def _models_of_params() -> list[str]:
    chosen = config.load(".").models
    return [chosen.encoder, chosen.draft, chosen.target]


def solve(args: argparse.Namespace) -> int:
    from semspec.solve import solve as answer

    settings = _overridden(args, seed=args.seed)
    return answer(args.question, settings, Path("."), args.method, args.json)


def bench(args: argparse.Namespace) -> int:
    asked = [m.strip() for m in (args.methods or "").split(",") if m.strip()]
    plain, variants = [m for m in asked if "@" not in m], [m for m in asked if "@" in m]
    if variants and not plain:
        raise UserError(f"--methods has variants only ({variants[0]}); add a method without @, such as target")
    settings = _overridden(
        args,
        seed=args.seed,
        **{
            "bench.methods": None if args.methods is None else plain,
            "bench.variants": None if args.methods is None else variants,
            "bench.dataset": args.dataset,
            "bench.limit": args.limit,
            "bench.repeats": args.repeats,
        },
    )
    from semspec.bench.command import bench as compare

    out = Path(args.out)
    summary = compare(settings, Path("."), out, Path(args.data_dir) if args.data_dir else None, args.part or (1, 1))
    if args.part:
        return 0
    if args.json:
        print(json.dumps(summary, sort_keys=True))
        return 0
    from rich.console import Console

    from semspec.report.tables import render_table

    Console().print(render_table(summary))
    print(f"results  {out / 'results.jsonl'}\nsummary  {out / 'summary.json'}")
    return 0


def plan(args: argparse.Namespace) -> int:
    from semspec.planning import command, prediction

    settings = _overridden(args)
    if args.check:
        if args.drafts is not None or args.acceptance is not None:
            raise UserError("--check asks nothing of --drafts or --acceptance; leave them out")
        if args.set and (Path(args.check) / config.PARAMS).exists():
            raise UserError(f"{args.check} has parameters of its own, and --check takes those; leave out --set")
        return prediction.check(settings, Path("."), args.check, args.json)
    drafts = [name.strip() for name in (args.drafts or "").split(",") if name.strip()]
    if args.drafts is not None and not drafts:
        raise UserError("--drafts names no model; name one, or leave it out for models.draft")
    return command.plan(settings, Path("."), drafts, args.acceptance, args.json)


def tune(args: argparse.Namespace) -> int:
    from semspec.tuning.launch import run as search

    names = ("trials", "workers", "objective", "price", "latency_limit", "live", "questions", "dataset")
    given = {f"tune.{n}": getattr(args, n) for n in names}
    if args.search is not None:
        given["tune.search"] = [part.strip() for part in args.search.split(",") if part.strip()]
    if args.recorded:
        given["tune.extend"] = False
    settings = _overridden(args, **given)
    return search(Path("."), settings.profile if args.name is None else args.name, settings, args.apply)


def study(args: argparse.Namespace) -> int:
    from semspec.study.command import run as measure

    path = measure(args.name, config.load("."), Path("."))
    print(path.read_text(encoding="utf-8"))
    print(f"table {path}, picture {path.with_suffix('.png')}, figures {path.with_suffix('.json')}")
    return 0


def report(args: argparse.Namespace) -> int:
    from semspec.bench.runner import recorded
    from semspec.report import build

    settings = recorded(args.results, Path(".")) if args.results else config.load(".")
    print(build(settings or config.load("."), Path("."), args.results, settings is not None, args.beside))
    return 0


def deploy(args: argparse.Namespace) -> int:
    from semspec.deploy import deploy as offer

    return offer(Path("."), args.port)


def registry(args: argparse.Namespace) -> int:
    if args.action != "promote" and (args.version or args.force):
        raise UserError(f"registry {args.action} takes no version and no --force; only promote does")
    from semspec.tracking.command import run as act

    act(args.action, args.version, _overridden(args), Path("."), args.force, args.json)
    return 0


def serve(args: argparse.Namespace) -> int:
    from semspec.serving.command import serve as run_server

    changed = [f"serve.{n}={v}" for n, v in (("host", args.host), ("port", args.port)) if v is not None]
    key = args.api_key or os.environ.get("SEMSPEC_API_KEY")
    return run_server(args.model, Path("."), args.method, key, [*args.set, *changed])


def doctor(args: argparse.Namespace) -> int:
    from semspec.doctor import examine

    return examine(Path("."), args.json)


def _unread(stream: int) -> bool:
    """Has the reader of this pipe gone (`semspec ... | head`)?"""
    poll = select.poll()
    poll.register(stream, 0)
    return bool(poll.poll(0))


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point of the `semspec` command."""
    args = parser().parse_args(argv)
    end_with_parent()
    unburden()
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    if not sys.stderr.isatty():
        os.environ.setdefault("TQDM_MININTERVAL", "30")  # a log file wants a line now and then, no animation
    try:
        code = globals()[args.verb](args)  # the function above of the verb's name
        sys.stdout.flush()
        return int(code)
    except UserError as e:
        print(f"error: {e}", file=sys.stderr)
        return 2
    except BrokenPipeError:
        unread = [stream for stream in (sys.stdout, sys.stderr) if _unread(stream.fileno())]
        if not unread:
            raise  # not what we print: another process has gone
        for stream in unread:
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
        return 0
    except OSError as e:
        print(f"error: {in_a_line(e)}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("interrupted; run the same command again to go on", file=sys.stderr)
        return 130

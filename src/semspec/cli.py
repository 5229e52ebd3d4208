"""The command line: verbs, their flags, and exit codes. Nothing heavy is imported until a verb runs.

Exit codes: 0 done; 2 the user's mistake (one `error:` line on stderr); 1 anything else; 130 interrupted.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import select
import sys
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any, NoReturn, get_args

from semspec import config, schema
from semspec.commands import TRACKED
from semspec.errors import UserError, in_a_line
from semspec.process import end_with_parent, unburden

STAGE_NAMES = ("models", "entailment", "contexts", "sample", "cluster", "train", "bench", "truth", "report")


class Parser(argparse.ArgumentParser):
    """argparse whose errors are one `error:` line and exit code 2."""

    def error(self, message: str) -> NoReturn:
        print(f"error: {message}; see `{self.prog} --help`", file=sys.stderr)
        sys.exit(2)


def _overridden(args: argparse.Namespace, **more: Any) -> schema.Settings:
    """params.yaml with the `--set` values and the given `section.name` values on top, in memory only."""
    values = {dotted: value for dotted, value in more.items() if value is not None}
    return config.overridden(".", getattr(args, "set", []), values, "the command line")


def _part(text: str) -> tuple[int, int]:
    """`K/N` -> (K, N)."""
    k, _, n = text.partition("/")
    if not (k.isdecimal() and n.isdecimal() and 1 <= int(k) <= int(n)):
        raise argparse.ArgumentTypeError(f"{text!r} is no part; write it as 1/2, 2/2")
    return int(k), int(n)


def _share(text: str) -> float:
    """A number from 0 to 1."""
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value <= 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no share; write a number from 0 to 1")
    return value


def _number(text: str) -> float:
    """A finite number."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise argparse.ArgumentTypeError(f"{text!r} is no number")
    return value


def _answered(text: str) -> Path:
    """The folder of a bench."""
    if not (Path(text) / "results.jsonl").is_file():
        raise argparse.ArgumentTypeError(f"{text!r} holds no results.jsonl; name a folder that a bench wrote")
    return Path(text)


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
    from semspec.planning import command

    settings = _overridden(args)
    if args.check:
        if args.set and (Path(args.check) / config.PARAMS).exists():
            raise UserError(f"{args.check} has parameters of its own, and --check takes those; leave out --set")
        return command.check(settings, Path("."), args.check, args.json)
    drafts = [name.strip() for name in args.drafts.split(",") if name.strip()]
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


def parser() -> Parser:
    top = Parser(prog="semspec", description="Semantic speculative decoding: probes, labels, comparison.")
    top.add_argument("--version", action="version", version=f"semspec {version('semspec')}")
    verbs = top.add_subparsers(dest="verb", required=True, metavar="VERB", parser_class=Parser)

    def verb(name: str, does: Any, text: str) -> Parser:
        p: Parser = verbs.add_parser(name, help=text, description=text)
        p.set_defaults(does=does)
        return p

    def settable(p: Parser) -> None:
        p.add_argument(
            "--set",
            action="append",
            default=[],
            metavar="a.b=c",
            help="change one parameter; may be repeated",
        )

    p = verb("run", run, "the whole pipeline as a Prefect flow; ends with the results table and the paths")
    p.add_argument("--profile", help=f"merge a profile into params.yaml first: {', '.join(config.profiles())}")
    settable(p)

    p = verb("stage", stage, "one stage of the pipeline; what dvc.yaml calls")
    p.add_argument("name", choices=STAGE_NAMES)
    p.add_argument(
        "--part",
        type=_part,
        metavar="K/N",
        help="(sample, bench) make every N-th shard or problem only, so that N processes can share it",
    )

    p = verb("models", models, "list, fetch or verify the models")
    p.add_argument("action", choices=("list", "pull", "verify"))
    p.add_argument("names", nargs="*", help="default: the models of params.yaml")
    p.add_argument("--json", action="store_true", help="(list) machine-readable")

    p = verb("solve", solve, "one answer, live, each step marked with its author, p, q and verdict")
    p.add_argument("question")
    p.add_argument("--method", default="semantic", choices=get_args(schema.Method), help="default: semantic")
    p.add_argument("--seed", type=int)
    p.add_argument("--json", action="store_true", help="one JSON object")
    settable(p)

    p = verb("bench", bench, "compare methods on a problem set; writes results.jsonl and summary.json")
    p.add_argument("--methods", help="comma-separated, such as target,draft,semantic,semantic@gamma=2")
    p.add_argument(
        "--dataset",
        help="gsm_symbolic, synthetic, gsm8k, math500, aime24, amc23, gpqa_diamond, "
        "or FILE.jsonl (id, question, answer)",
    )
    p.add_argument("--data-dir", help="read the published sets from this folder instead of the hub")
    p.add_argument("--limit", type=int, help="number of problems")
    p.add_argument("--repeats", type=int, help="answers of each method to each problem")
    p.add_argument("--seed", type=int)
    p.add_argument("--out", default="results/run", help="folder to write into (default: results/run)")
    p.add_argument("--part", type=_part, metavar="K/N", help="answer every N-th problem only; docs/scale.md")
    p.add_argument("--json", action="store_true", help="print the summary as JSON")
    settable(p)

    p = verb("plan", plan, "what drafting can gain at most on this machine, before a probe is trained")
    p.add_argument("--drafts", default="", metavar="A,B", help="drafts to consider; default: models.draft")
    p.add_argument(
        "--acceptance",
        type=_share,
        help="share of steps kept; default: that of the last bench of the pair here, if any",
    )
    p.add_argument("--check", type=_answered, metavar="FOLDER", help="predict this finished bench instead")
    p.add_argument("--json", action="store_true", help="machine-readable")
    settable(p)

    p = verb("tune", tune, "search for better settings on validation questions; a Prefect flow with Optuna")
    p.add_argument("--name", help="of the search, which goes on where it stopped; default: the profile's name")
    p.add_argument("--trials", type=int, help="how many there shall be in all")
    p.add_argument("--workers", type=int, help="processes that share them")
    p.add_argument("--search", help="what is searched: of decide,gamma,probe,layers,labels,split")
    p.add_argument("--objective", help="pareto, or combined: pass_at_1 - lambda * latency / latency(target)")
    p.add_argument("--lambda", type=_number, dest="price", metavar="L", help="Pass@1 worth one latency of the target")
    p.add_argument("--latency-limit", type=_number, metavar="RATIO", help="latency / latency(target) at most")
    p.add_argument("--dataset", help="validation questions: FILE.jsonl; default: those of contexts.dataset")
    p.add_argument("--questions", type=int, help="validation questions of a trial")
    p.add_argument("--live", type=int, metavar="K", help="run the K best for real afterwards")
    p.add_argument("--recorded", action="store_true", help="replay what is recorded; load no model")
    p.add_argument("--apply", action="store_true", help="write the winner into params.yaml")

    p = verb("study", study, "what labels, predictors or more data are worth, measured on this project's samples")
    p.add_argument("name", choices=("labels", "predictors", "scaling"))

    p = verb("report", report, "write results/report from what the stages have left")
    p.add_argument(
        "--results", type=_answered, metavar="FOLDER", help="the folder of any bench: write its report/ instead"
    )
    p.add_argument(
        "--beside",
        type=_answered,
        metavar="FOLDER",
        action="append",
        default=[],
        help="one more bench of this pair, for what the paper's tables still lack (may be given again)",
    )
    p = verb("deploy", deploy, "offer the flows in the UI of a running Prefect server, with forms; until Ctrl-C")
    p.add_argument("--port", type=int, default=4201, help="where the reports are shown (default: 4201, on loopback)")

    p = verb("registry", registry, "the registered probes: list them, promote one to champion, or take that back")
    p.add_argument("action", choices=("list", "promote", "rollback"))
    p.add_argument("version", nargs="?", help="(promote) a version or alias; default: the challenger")
    p.add_argument("--force", action="store_true", help="(promote) whatever the gate says")
    p.add_argument("--json", action="store_true", help="machine-readable")

    p = verb("serve", serve, "an OpenAI-compatible server and a chat page that shows who wrote which step")
    p.add_argument(
        "--model", metavar="REF", help="models:/NAME@ALIAS, models:/NAME/VERSION or a bundle; default: this project"
    )
    p.add_argument(
        "--method",
        default="semantic",
        choices=get_args(schema.Method),
        help="of requests that name none",
    )
    p.add_argument("--host", help="default: serve.host")
    p.add_argument("--port", type=int, help="default: serve.port; 0 = a free one")
    p.add_argument("--api-key", help="asked of every client; SEMSPEC_API_KEY keeps it out of the process list")
    settable(p)

    p = verb("doctor", doctor, "check this machine, the models and the project folder")
    p.add_argument("--json", action="store_true")
    return top


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
        code = args.does(args)
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

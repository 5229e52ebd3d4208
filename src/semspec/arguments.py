"""The command line's verbs and flags, and the one `error:` line for a flag that is wrong.

Knows what may be typed, nothing of what a verb does (`cli.py`).
"""

from __future__ import annotations

import argparse
import math
import sys
from importlib.metadata import version
from pathlib import Path
from typing import NoReturn, get_args

from semspec import config, schema

STAGE_NAMES = ("models", "entailment", "contexts", "sample", "cluster", "train", "bench", "truth", "report")


class Parser(argparse.ArgumentParser):
    """argparse whose errors are one `error:` line and exit code 2."""

    def error(self, message: str) -> NoReturn:
        print(f"error: {message}; see `{self.prog} --help`", file=sys.stderr)
        sys.exit(2)


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


def parser() -> Parser:
    top = Parser(prog="semspec", description="Semantic speculative decoding: probes, labels, comparison.")
    top.add_argument("--version", action="version", version=f"semspec {version('semspec')}")
    verbs = top.add_subparsers(dest="verb", required=True, metavar="VERB", parser_class=Parser)

    def verb(name: str, text: str) -> Parser:
        p: Parser = verbs.add_parser(name, help=text, description=text)
        return p

    def settable(p: Parser) -> None:
        p.add_argument(
            "--set",
            action="append",
            default=[],
            metavar="a.b=c",
            help="change one parameter; may be repeated",
        )

    p = verb("run", "the whole pipeline as a Prefect flow; ends with the results table and the paths")
    p.add_argument("--profile", help=f"merge a profile into params.yaml first: {', '.join(config.profiles())}")
    settable(p)

    p = verb("stage", "one stage of the pipeline; what dvc.yaml calls")
    p.add_argument("name", choices=STAGE_NAMES)
    p.add_argument(
        "--part",
        type=_part,
        metavar="K/N",
        help="(sample, bench) make every N-th shard or problem only, so that N processes can share it",
    )

    p = verb("models", "list, fetch or verify the models")
    p.add_argument("action", choices=("list", "pull", "verify"))
    p.add_argument("names", nargs="*", help="default: the models of params.yaml")
    p.add_argument("--json", action="store_true", help="(list) machine-readable")

    p = verb("solve", "one answer, live, each step marked with its author, p, q and verdict")
    p.add_argument("question")
    p.add_argument("--method", default="semantic", choices=get_args(schema.Method), help="default: semantic")
    p.add_argument("--seed", type=int)
    p.add_argument("--json", action="store_true", help="one JSON object")
    settable(p)

    p = verb("bench", "compare methods on a problem set; writes results.jsonl and summary.json")
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

    p = verb("plan", "what drafting can gain at most on this machine, before a probe is trained")
    p.add_argument("--drafts", metavar="A,B", help="drafts to consider; default: models.draft")
    p.add_argument(
        "--acceptance",
        type=_share,
        help="share of steps kept; default: that of the last bench of the pair here, if any",
    )
    p.add_argument("--check", type=_answered, metavar="FOLDER", help="predict this finished bench instead")
    p.add_argument("--json", action="store_true", help="machine-readable")
    settable(p)

    p = verb("tune", "search for better settings on validation questions; a Prefect flow with Optuna")
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

    p = verb("study", "what labels, predictors or more data are worth, measured on this project's samples")
    p.add_argument("name", choices=("labels", "predictors", "scaling"))

    p = verb("report", "write results/report from what the stages have left")
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
    p = verb("deploy", "offer the flows in the UI of a running Prefect server, with forms; until Ctrl-C")
    p.add_argument("--port", type=int, default=4201, help="where the reports are shown (default: 4201, on loopback)")

    p = verb("registry", "the registered probes: list them, promote one to champion, or take that back")
    p.add_argument("action", choices=("list", "promote", "rollback"))
    p.add_argument("version", nargs="?", help="(promote) a version or alias; default: the challenger")
    p.add_argument("--force", action="store_true", help="(promote) whatever the gate says")
    p.add_argument("--json", action="store_true", help="machine-readable")

    p = verb("serve", "an OpenAI-compatible server and a chat page that shows who wrote which step")
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

    p = verb("doctor", "check this machine, the models and the project folder")
    p.add_argument("--json", action="store_true")
    return top

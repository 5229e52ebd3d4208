"""One answer in the terminal, live: each step as soon as it is settled, with its author, p, q and verdict.

`solve` puts the pieces together (models, probes, a method) and shows what the method reports; it decides
nothing. In a terminal a rejected draft is struck through; elsewhere the same comes as plain text, or as
one JSON object.
"""

from __future__ import annotations

import json
from contextlib import nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from semspec.errors import UserError

if TYPE_CHECKING:
    from rich.console import Console

    from semspec.decoding import Answer, Method, TraceStep
    from semspec.schema import Settings

STYLES = {"draft": "cyan", "target": "magenta"}


def _method(name: str, settings: Settings, root: Path) -> Method:
    from semspec import decoding
    from semspec.bench.command import load_models, load_probes

    if name not in decoding.METHODS:
        raise UserError(f"unknown method '{name}'; known: {', '.join(decoding.METHODS)}")
    probes = load_probes(settings, root, [name])
    return decoding.build(name, settings, *load_models(settings, [name]), probes)


class View:
    """Prints an answer's steps as they come, then what they cost."""

    def __init__(self, console: Console):
        self.console = console

    def _print(self, text: str, style: str = "") -> None:
        from rich.text import Text

        safe = text.replace("\x1b", "")  # a model must not steer the terminal
        self.console.print(Text(safe, style), soft_wrap=True)

    def step(self, step: TraceStep) -> None:
        verdict = "  unfamiliar" if step.far else ""
        if step.p is not None:
            verdict = f"  p {step.p:.2f}  q {step.q:.2f}{verdict}"
        if step.score is not None:
            verdict = f"{verdict}  score {step.score:.2f}"
        if step.accepted is False:
            self._print(f"draft{verdict}  rejected", "red")
            self._print((step.rejected_text or "").strip() or "(end)", "dim strike")
            verdict = "  instead"
        elif step.accepted:
            verdict += "  accepted"
        cut = "  (cut)" if step.truncated else ""
        self._print(f"{step.author}{verdict}{cut}", f"bold {STYLES[step.author]}")
        self._print((step.text.strip() or "(end)") + "\n", STYLES[step.author])

    def total(self, answer: Answer, boxed: str | None) -> None:
        rate = answer.output_tokens / max(answer.seconds, 1e-9)
        share = answer.target_tokens / max(answer.output_tokens, 1)
        parts = [
            f"{answer.output_tokens} tokens in {answer.seconds:.1f} s ({rate:.1f} tokens/s)",
            f"{share:.0%} by the target",
        ]
        if answer.offered:
            parts.append(f"{answer.accepted} of {answer.offered} draft steps accepted")
        if answer.finish_reason == "length":
            parts.append("cut off at bench.max_tokens")
        self._print(", ".join(parts), "dim")
        self._print(f"answer: {boxed if boxed is not None else 'none found'}", "bold")


def record(question: str, method: str, seed: int, answer: Answer, boxed: str | None) -> dict[str, Any]:
    """The answer as plain data, named as in results.jsonl; `trace` has the steps."""
    data = asdict(answer)
    data["output"] = data.pop("text")
    data["latency_s"] = data.pop("seconds")
    steps = len(answer.trace)
    return {"question": question, "method": method, "seed": seed, "answer": boxed, "steps": steps, **data}


def solve(question: str, settings: Settings, root: Path, method: str = "semantic", as_json: bool = False) -> int:
    """Answer `question` on stdout; returns the exit code 0.

    UserError when the question is empty, the method unknown, or a probe that it needs is missing.
    """
    from rich.console import Console

    from semspec.problems.answer import final_answer

    if not question.strip():
        raise UserError('the question is empty; write it in quotes: semspec solve "What is 6 times 7?"')
    try:
        question.encode()
    except UnicodeEncodeError:
        raise UserError("the question is no UTF-8 text") from None
    console, status = Console(highlight=False), Console(stderr=True)
    with status.status("loading the models") if status.is_terminal else nullcontext():
        chosen = _method(method, settings, root)
    view = None if as_json else View(console)
    answer = chosen.answer(question, settings.seed, view.step if view else None)
    boxed = final_answer(answer.text)
    if view:
        view.total(answer, boxed)
    else:
        row = record(question, method, settings.seed, answer, boxed)
        print(json.dumps(row, sort_keys=True, ensure_ascii=False))
    return 0

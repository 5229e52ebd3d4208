"""Runs methods on problems and writes one row per answer.

Methods take turns on each problem, each the first in its turn, so that a machine whose load drifts slows all of them
alike; the first, cold answer of each method is thrown away. Every row is on disk as soon as it exists, and a run that
was killed goes on where it stopped; a finished one that is asked for more problems answers those alone. Several
processes may take a part of the problems each: all methods of a problem run in the same part, one after the other, so
that their latencies stay paired. Knows the interface of a method, not how any method works.
"""

from __future__ import annotations

import hashlib
import json
import math
import sys
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from semspec import config, schema
from semspec.bench.metrics import METRICS, summarize
from semspec.errors import UserError
from semspec.files import read_json, read_jsonl, write_json, write_jsonl
from semspec.provenance import ARITHMETIC, params_sha256

if TYPE_CHECKING:
    from semspec.decoding.base import Answer, Method
    from semspec.problems import Problem
    from semspec.schema import Settings

Progress = Callable[[int, int, dict[str, Any]], None]  # answers done, answers in all, the row just written
Grader = Callable[[str, str], Any]

Part = tuple[int, int]  # (k, n): every n-th problem, from the k-th on
WHOLE: Part = (1, 1)
PARTIAL = "results.partial.jsonl"  # rows so far; a part's are in results.partial.K-N.jsonl
PARTIALS = "results.partial*.jsonl"
BENCH = Path("results/bench")  # the pipeline's own comparison
KEY = "answers_key"  # in the summary's provenance: `settings_key`
WARM_UP = "What is 1 + 1?"
PLACE = "made_on"  # in a row: machine and commit; in the summary's provenance: how many answers were made on each
_TIMES = ("latency_s", "phases", PLACE)  # the fields that differ between two equal runs
_BENCH_KEY = ("gamma", "temperature", "top_p", "max_tokens")  # the parts of `bench` that an answer depends on


def answer_seed(seed: int, problem_id: str, repeat: int = 0) -> int:
    """A seed in [0, 2**31) made from the run's seed, the problem and the repeat alone.

    All methods share it: two that draw the same verdicts with the same numbers differ by what they do alone.
    """
    key = json.dumps([seed, problem_id, repeat]).encode()
    return int.from_bytes(hashlib.sha256(key).digest()[:4], "big") >> 1


def settings_key(settings: Settings, identity: str = "") -> str:
    """Hash of everything an answer depends on: a row of a killed run is kept only if it is the same."""
    data = settings.model_dump(mode="json", exclude={*schema.ASIDE, "report"})
    data["bench"] = {k: data["bench"][k] for k in _BENCH_KEY}
    data |= {"identity": identity, "arithmetic": ARITHMETIC}
    return hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()


def _finite(value: Any) -> Any:
    """`value` with NaN and infinities replaced by null: neither is JSON."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {k: _finite(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(v) for v in value]
    return value.item() if hasattr(value, "item") else value


def make_row(
    problem: Problem,
    method: str,
    answer: Answer,
    grade: Any,
    *,
    index: int,
    repeat: int,
    seed: int,
    prompt: str,
    passes: Mapping[str, Counter[int]],
) -> dict[str, Any]:
    """One line of results.jsonl. `problem` in it is the problem's place in the set, from 0."""
    return _finite(
        {
            "id": str(problem.id),
            "problem": index,
            "repeat": repeat,
            "method": method,
            "question": problem.question,
            "output": answer.text,
            "answer": grade.answer,
            "gold": problem.answer,
            **({"order": problem.order} if problem.kind == "choice" else {}),
            "correct": bool(grade.correct),
            "latency_s": answer.seconds,
            "phases": dict(answer.phases),
            "output_tokens": answer.output_tokens,
            "target_tokens": answer.target_tokens,
            "draft_tokens": answer.draft_tokens,
            "discarded_tokens": answer.discarded_tokens,
            "verifier_tokens": answer.verifier_tokens,
            "offered": answer.offered,
            "accepted": answer.accepted,
            "accepted_tokens": answer.accepted_tokens,
            "verifications": answer.verifications,
            "target_passes": answer.target_passes,
            "passes": {role: {str(w): n for w, n in sorted(p.items())} for role, p in passes.items() if p},
            "exact_offered": answer.exact_offered,
            "exact_accepted": answer.exact_accepted,
            "steps": len(answer.trace),
            "seed": seed,
            "finish_reason": answer.finish_reason,
            "prompt_sha256": prompt,
            "trace": [asdict(step) for step in answer.trace],
        }
    )


def graded(output: str, problem: Problem, grade: Grader | None) -> Any:
    """The Grade of an output by `grade`, else by the grader of the problem's kind."""
    from semspec import problems as package

    if grade is not None:
        return grade(output, problem.answer)
    if problem.kind == "choice":
        return package.grade_choice(output, problem.answer, problem.choices)
    return package.grade(output, problem.answer)


def untimed(row: Mapping[str, Any]) -> dict[str, Any]:
    """The part of a row that two equal runs share: no seconds, the trace's included, and no machine."""
    kept = {k: v for k, v in row.items() if k not in _TIMES}
    kept["trace"] = [{k: v for k, v in step.items() if k != "seconds"} for step in row["trace"]]
    return kept


def _whole(method: Any) -> bool:
    """Whether a method's entry in summary.json has numbers where its metrics should be."""
    if not isinstance(method, dict) or not isinstance(method.get("n"), int):
        return False
    return all(isinstance(method.get(metric.key), int | float | None) for metric in METRICS)


def read(folder: Path) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """results.jsonl and summary.json of a finished comparison; `UserError` where they are none, or disagree."""
    rows, summary = read_jsonl(folder / "results.jsonl"), read_json(folder / "summary.json")
    methods: Any = summary.get("methods")
    whole = isinstance(methods, dict) and methods and isinstance(summary.get("provenance", {}), dict)
    if not whole or {r.get("method") for r in rows} != set(methods) or not all(map(_whole, methods.values())):
        raise UserError(f"{folder} holds no finished comparison; run `semspec bench --out {folder}`, or `semspec run`")
    return rows, summary


def recorded(folder: Path, root: Path) -> Settings | None:
    """The settings of a finished comparison: those beside it, or the project's where they made it; else None."""
    if (folder / config.PARAMS).exists():
        return config.load(folder)
    if folder.resolve() != (root / BENCH).resolve():
        return None
    now, made = config.load(root), read_json(folder / "summary.json").get("provenance", {})
    return now if made.get("params_sha256") == params_sha256(now) else None  # changed since


Rows = dict[tuple[str, int], dict[str, Any]]  # the answers to one question, by method and repeat
Together = dict[tuple[str, frozenset[str]], Rows]  # by question asked, and the methods of the run that asked it


def _entries(path: Path) -> list[dict[str, Any]]:
    """The whole lines of a file of answers; its last one may be torn."""
    found = []
    for line in path.read_text(encoding="utf-8", errors="replace").split("\n"):
        with suppress(ValueError, KeyError, TypeError):
            entry = json.loads(line)
            _place(entry), entry["key"], entry["asked"], frozenset(entry["beside"])
            found.append(entry)
    return found


def _place(entry: Mapping[str, Any]) -> tuple[str, int]:
    return entry["row"]["method"], entry["row"]["repeat"]


def _recover(out: Path, mine: Path, key: str) -> Together:
    """Rows of killed runs, of parts, and those put aside. The file `mine` loses a torn line and nothing else."""
    begun: Together = {}
    for path in sorted(out.glob(PARTIALS)):
        entries = _entries(path)
        if path == mine:
            write_jsonl(path, entries)
        for e in entries:
            if e["key"] == key:
                begun.setdefault((e["asked"], frozenset(e["beside"])), {})[_place(e)] = e["row"]
    return begun


def _finished(out: Path, key: str) -> Together:
    """Rows of the finished run in `out`, if it is of the same key."""
    try:
        rows, summary = read(out)
    except UserError:
        return {}
    made = summary.get("provenance")
    if not isinstance(made, dict) or made.get(KEY) != key:
        return {}
    by_question: dict[str, Rows] = {}
    for row in rows:
        with suppress(KeyError):  # a row that is not ours is not known
            asked = _sha256(row["id"], row["question"], row["gold"])
            by_question.setdefault(asked, {})[row["method"], row["repeat"]] = row
    return {(asked, frozenset(name for name, _ in found)): found for asked, found in by_question.items()}


def _usable(there: Together, methods: Collection[str]) -> dict[str, Rows]:
    """For each question the answers of the run that has most of them; what is compared is measured together."""
    best: dict[str, Rows] = {}
    for (asked, beside), rows in there.items():
        wanted = {place: row for place, row in rows.items() if place[0] in methods}
        if beside.issuperset(methods) and len(wanted) >= len(best.get(asked, {})):
            best[asked] = wanted
    return best


def _discard(out: Path, key: str, asked: Collection[str]) -> None:
    """Take the rows of a finished run out of the files; what other parameters began, and other questions, stay."""
    for path in out.glob(PARTIALS):
        others = [e for e in _entries(path) if e["key"] != key or e["asked"] not in asked]
        if others:
            write_jsonl(path, others)
        else:
            path.unlink()


def _sha256(*parts: str) -> str:
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


class _WarmEnough(Exception):
    """Ends a warm-up from within `on_step`."""


def _warm_up(method: Method) -> None:
    """Let a method write one step of a small answer, counted nowhere: the first pass pays for lazy set-up."""

    def stop(step: Any) -> None:
        raise _WarmEnough

    with suppress(_WarmEnough):
        method.answer(WARM_UP, seed=0, on_step=stop)


def turns(problems: int, repeats: int, methods: Sequence[str], part: Part = WHOLE) -> list[tuple[int, int, str]]:
    """(problem, repeat, method) as they run: each time another method comes first.

    A part goes on in the rotation where the part before it ends, so that over all parts, as in the whole, the methods
    come first equally often, up to one time.
    """
    k, n = part
    plan, turn = [], repeats * sum(len(range(j, problems, n)) for j in range(k - 1))
    for i in range(k - 1, problems, n):
        for r in range(repeats):
            first = turn % len(methods)
            plan += [(i, r, name) for name in [*methods[first:], *methods[:first]]]
            turn += 1
    return plan


def run(
    settings: Settings,
    methods: Mapping[str, Method],
    problems: Sequence[Problem],
    out: Path,
    progress: Progress | None = None,
    *,
    identity: str = "",
    grade: Grader | None = None,
    provenance: Mapping[str, Any] | None = None,
    part: Part = WHOLE,
    passes: Callable[[], Mapping[str, Counter[int]]] = dict,
) -> dict[str, Any]:
    """Answer every problem with every method; write results.jsonl, graded.jsonl and summary.json into `out`.

    identity: anything else an answer depends on (a hash of the probes), so that a resumed run mixes nothing.
    grade: (output, gold) -> Grade; when absent, `semspec.problems.grade`, or `grade_choice` for kind "choice".
    provenance: more entries for the summary's provenance (dataset, its hash).
    part: (k, n) = answer every n-th problem only, from the k-th on, and leave the rows for a call without it.
    passes: {role: the passes that its model has made so far}; a row keeps those of its answer.
    Returns the summary ({} for a part). An error of a method is not caught: rows written so far are kept for the next
    run.
    """
    from semspec.provenance import collect, place

    ids = [str(p.id) for p in problems]
    twice = sorted({i for i in ids if ids.count(i) > 1})
    if twice:
        raise UserError(f"problem id {twice[0]!r} comes twice in the problem set; give every problem its own id")
    out = Path(out)
    out.mkdir(parents=True, exist_ok=True)
    key, partial = settings_key(settings, identity), out / PARTIAL
    if part != WHOLE:
        partial = partial.with_suffix(f".{part[0]}-{part[1]}.jsonl")
    asked = [_sha256(str(p.id), p.question, str(p.answer)) for p in problems]
    begun, finished = _recover(out, partial, key), _finished(out, key)
    each = {(name, repeat) for name in methods for repeat in range(settings.bench.repeats)}
    whole = {group: its for group, its in finished.items() if each <= its.keys()}
    again = not {question for question, _ in whole} < set(asked)  # no more than it answered: measured again
    # its files give way to others in the end
    kept = {g: its for g, its in finished.items() if g[0] not in asked or (g in whole and not again)}
    if again:  # a kill may have come before they were taken out
        for group, its in whole.items():
            rows_then = begun.get(group, {})
            begun[group] = {place: row for place, row in rows_then.items() if its.get(place) != row}
    done = _usable(begun | {group: begun.get(group, {}) | its for group, its in kept.items()}, methods)
    plan = turns(len(problems), settings.bench.repeats, list(methods), part)
    if there := sum((name, repeat) in done.get(asked[i], {}) for i, repeat, name in plan):
        print(f"bench: {there} of {len(plan)} answers are already there", file=sys.stderr)

    rows: list[dict[str, Any]] = []
    warm: set[str] = set()
    here = place()

    def entry(asked: str, row: Mapping[str, Any], beside: Collection[str]) -> str:
        made = {"key": key, "asked": asked, "beside": sorted(beside), "row": row}
        return json.dumps(made, sort_keys=True, ensure_ascii=False) + "\n"

    with partial.open("a", encoding="utf-8") as file:
        for (question, beside), its in kept.items():
            old = begun.get((question, beside), {})
            file.writelines(entry(question, row, beside) for place, row in its.items() if old.get(place) != row)
        for index, repeat, name in plan:
            problem = problems[index]
            known = done.get(asked[index], {}).get((name, repeat))
            if known is not None:
                row = known | {"problem": index}
            else:
                if name not in warm:
                    _warm_up(methods[name])
                    warm.add(name)
                seed = answer_seed(settings.seed, str(problem.id), repeat)
                prompt = _sha256(settings.text.system, problem.question)
                before = {role: made.copy() for role, made in passes().items()}
                answer = methods[name].answer(problem.question, seed=seed)
                done_by = {role: made - before[role] for role, made in passes().items()}
                row = make_row(
                    problem,
                    name,
                    answer,
                    graded(answer.text, problem, grade),
                    index=index,
                    repeat=repeat,
                    seed=seed,
                    prompt=prompt,
                    passes=done_by,
                ) | {PLACE: here}
                file.write(entry(asked[index], row, methods))
                file.flush()
            rows.append(row)
            if progress is not None:
                progress(len(rows), len(plan), row)

    if part != WHOLE:
        return {}
    order = {name: i for i, name in enumerate(methods)}
    rows.sort(key=lambda row: (row["problem"], row["repeat"], order[row["method"]]))
    made_on = Counter(row.get(PLACE, "unknown") for row in rows)
    summary = {
        "methods": summarize(rows, settings.bench.bootstrap, settings.seed),
        "provenance": collect(settings, **{KEY: key, PLACE: dict(made_on)}, **(provenance or {})),
    }
    (out / "summary.json").unlink(missing_ok=True)  # so that it never speaks of other answers
    write_jsonl(out / "results.jsonl", rows)
    write_jsonl(out / "graded.jsonl", [untimed(row) for row in rows])
    write_json(out / "summary.json", summary)
    _discard(out, key, asked)
    return summary

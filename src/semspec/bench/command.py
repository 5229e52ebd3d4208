"""The comparison, put together: problems, engines, probes and methods into one run. Used by the stage and the command.

Says which pieces meet; it measures nothing itself (runner.py) and defines no metric (metrics.py).
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from semspec import decoding, engine
from semspec.bench import runner
from semspec.config import Settings
from semspec.engine.base import Engine
from semspec.errors import UserError
from semspec.files import read_json, sha256
from semspec.problems import dataset_id, load

ROLES = ("draft", "target")


def load_probes(settings: Settings, root: Path, methods: Collection[str] = ()) -> dict[str, Any]:
    """What `methods` judge by: {role: Probe}, "joint" where `decide.rule` asks for it, and {method: the same} for the
    methods with probes of their own.

    `UserError` when one is missing, or was trained for another model.
    """
    folders = _folders(settings, root, methods)
    own = folders.pop("semantic", None)
    probes = {} if own is None else _load(own, settings, root)
    return probes | {name: _load(folder, settings, root) for name, folder in folders.items()}


def _folders(settings: Settings, root: Path, methods: Collection[str]) -> dict[str, Path]:
    """Where the probes of `methods` lie; the project's own under "semantic"."""
    own = root / "data/probes"
    folders = {"semantic": own} if {"semantic", "semantic_hybrid"} & set(methods) else {}
    if "semantic_last_hidden" in methods:
        folders["semantic_last_hidden"] = own / "last_hidden"
    if "semantic_cross_domain" in methods:
        other = settings.baselines.cross_probes
        if not other:
            raise UserError("semantic_cross_domain needs baselines.cross_probes: the data/probes of another project")
        folders["semantic_cross_domain"] = root / other
    return folders


def _load(folder: Path, settings: Settings, root: Path) -> dict[str, Any]:
    from semspec.probe import conditions

    for role in ROLES:
        if not (folder / role / "config.json").exists():
            raise UserError(f"{folder / role} holds no trained probe; run `semspec run` first")
        trained, asked = read_json(root / f"data/models/{role}.json")["name"], getattr(settings.models, role)
        if trained not in (asked, Path(asked).name):
            raise UserError(f"the {role}'s probe was trained for {trained}, not {asked}; run `semspec run` first")
    probes = read_probes(folder, settings)
    for role in ROLES:
        note = conditions.check(probes[role].config.get("trained_on", {}), settings, root, role)
        if note:
            print(f"note: {note}", file=sys.stderr)
    return probes


def read_probes(folder: Path, settings: Settings) -> dict[str, Any]:
    """The same of any folder that holds them; nobody asks what they were trained for."""
    from semspec.probe import Joint, Probe

    probes: dict[str, Any] = {role: Probe.load(folder / role) for role in ROLES}
    if settings.decide.rule == "joint":
        probes["joint"] = Joint.load(folder / "joint")
    return probes


def load_models(settings: Settings, names: Collection[str]) -> tuple[Engine | None, Engine]:
    """Draft and target; no draft where none of the methods `names` needs one."""
    trust = settings.models.trust_remote_code
    draft = engine.load(settings.models.draft, settings.engine, trust) if decoding.NEEDS_DRAFT & set(names) else None
    return draft, engine.load(settings.models.target, settings.engine, trust)


def _identity(settings: Settings, root: Path, methods: list[str]) -> str:
    """A hash of the models and probes in use: a resumed run never mixes answers of different ones."""
    files = [path for role in ROLES if (path := root / f"data/models/{role}.json").exists()]
    for folder in _folders(settings, root, methods).values():
        for part in ("draft", "joint", "target"):
            files += [path for name in ("config.json", "probe.safetensors") if (path := folder / part / name).exists()]
    return hashlib.sha256("".join(sha256(f) for f in files).encode()).hexdigest()


def _bar(total: int) -> Callable[[int, int, dict[str, Any]], None]:
    """A progress bar that says what was answered last."""
    from tqdm import tqdm

    bar = tqdm(total=total, desc="bench", unit="answer", file=sys.stderr)

    def tick(done: int, of: int, row: dict[str, Any]) -> None:
        bar.set_postfix_str(f"{row['method']} {'right' if row['correct'] else 'wrong'} {row['latency_s']:.1f} s")
        bar.update(done - bar.n)
        if done == of:
            bar.close()

    return tick


@contextmanager
def _alone(out: Path) -> Iterator[None]:
    """Hold `out` against a second bench."""
    out.mkdir(parents=True, exist_ok=True)
    try:
        with FileLock(out / ".lock", timeout=0):
            yield
    except Timeout:
        raise UserError(f"another bench is writing into {out}; wait for it, or choose another --out") from None


def bench(settings: Settings, root: Path, out: Path, data_dir: Path | None = None) -> dict[str, Any]:
    """Run `settings.bench` and write its files into `out`; returns the summary."""
    with _alone(out):
        return _bench(settings, root, out, data_dir)


def _bench(settings: Settings, root: Path, out: Path, data_dir: Path | None) -> dict[str, Any]:
    chosen = settings.bench
    problems = load(chosen.dataset, "test", chosen.limit, settings.seed, data_dir)
    names: list[str] = list(dict.fromkeys(chosen.methods))
    probes = load_probes(settings, root, names)
    draft, target = load_models(settings, names)
    methods = {name: decoding.build(name, settings, draft, target, probes) for name in names}
    return runner.run(
        settings,
        methods,
        problems,
        out,
        _bar(len(problems) * chosen.repeats * len(names)),
        identity=_identity(settings, root, names),
        provenance={
            "dataset": chosen.dataset,
            "dataset_sha256": dataset_id(problems),
            "draft": settings.models.draft,
            "target": settings.models.target,
            "weights": settings.engine.weights,
        },
    )

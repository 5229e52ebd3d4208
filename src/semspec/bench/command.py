"""The comparison, put together: problems, engines, probes and methods into one run. Used by the stage and the command.

Says which pieces meet; it measures nothing itself (runner.py) and defines no metric (metrics.py).
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from semspec import config, decoding, engine
from semspec.bench import runner
from semspec.engine.base import Engine
from semspec.errors import UserError
from semspec.files import read_json, sha256
from semspec.problems import check_apart, dataset_id, load
from semspec.problems.sets import source
from semspec.schema import Settings

ROLES = ("draft", "target")
ASKING_S = 1.0  # a part may be asking whether the whole is at work
DYING_S = 10.0  # a part that is done again may find the one whose worker died still about to end


def plain(names: Collection[str]) -> set[str]:
    """The methods behind names that may be variants: `semantic@gamma=2` is `semantic`."""
    return {name.partition("@")[0] for name in names}


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
    own, methods = root / "data/probes", plain(methods)
    folders = {"semantic": own} if {"semantic", "semantic_hybrid"} & methods else {}
    if "semantic_last_hidden" in methods:
        folders["semantic_last_hidden"] = own / "last_hidden"
    if "semantic_cross_domain" in methods:
        folders["semantic_cross_domain"] = cross_probes(settings, root)
    return folders


def cross_probes(settings: Settings, root: Path) -> Path:
    """The folder of another project's probes; `UserError` when none is named, or it holds none."""
    other = settings.baselines.cross_probes
    if not other or not all((root / other / role / "config.json").exists() for role in ROLES):
        raise UserError(
            "semantic_cross_domain needs baselines.cross_probes: the data/probes of another project"
            + (f"; {other} holds no trained probes" if other else "")
        )
    return root / other


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
    """{role: Probe} of any folder, "joint" where it is there or needed; nobody asks what they were trained for."""
    from semspec.probe import Joint, Probe

    probes: dict[str, Any] = {role: Probe.load(folder / role) for role in ROLES}
    if settings.decide.rule == "joint" or Joint.is_trained(folder / "joint"):  # a variant may ask for it
        probes["joint"] = Joint.load(folder / "joint")
    return probes


def load_models(settings: Settings, names: Collection[str]) -> tuple[Engine | None, Engine]:
    """Draft and target; no draft where none of the methods `names` needs one."""
    models, trust = settings.models, settings.models.trust_remote_code
    draft = None
    if decoding.NEEDS_DRAFT & plain(names):
        draft = engine.load(models.draft, settings.engine.of("draft"), trust)
    return draft, engine.load(models.target, settings.engine.of("target"), trust)


def _made_of(folder: Path) -> list[Path]:
    """The files in a folder of probes on which a verdict depends."""
    found = (sorted((folder / part).rglob("*")) for part in (*ROLES, "joint"))
    return [p for paths in found for p in paths if p.name in ("config.json", "probe.safetensors")]


def _hash_of(parts: Iterable[str]) -> str:
    return hashlib.sha256("".join(parts).encode()).hexdigest()


def _identity(settings: Settings, root: Path, methods: list[str]) -> str:
    """A hash of the models, their formats and the probes in use: a resumed run mixes no answers of different ones."""
    files = [path for role in ROLES if (path := root / f"data/models/{role}.json").exists()]
    for folder in _folders(settings, root, methods).values():
        files += _made_of(folder)
    return _hash_of([*map(sha256, files), *engine.uncommon(settings.engine)])


def _domain(folder: Path) -> str:
    """The problems that the probes in `folder` were trained on, as `contexts.dataset` named them; "" if unknown."""
    return read_json(folder / "target/config.json").get("trained_on", {}).get("domain") or ""


def _of_probes(folder: Path) -> dict[str, str]:
    """Which probes are in `folder`, for a result that they made: hash and domain, a file of problems by its name."""
    domain = _domain(folder)
    return {"sha256": _hash_of(map(sha256, _made_of(folder))), "domain": domain and Path(domain).name}


@contextmanager
def _bar(total: int) -> Iterator[Callable[[int, int, dict[str, Any]], None]]:
    """A progress bar that says what was answered last."""
    from tqdm import tqdm

    bar = tqdm(total=total, desc="bench", unit="answer", file=sys.stderr)

    def tick(done: int, of: int, row: dict[str, Any]) -> None:
        said = f"{row['method']} {'right' if row['correct'] else 'wrong'} {row['latency_s']:.1f} s"
        bar.set_postfix_str(said, refresh=False)
        bar.update(done - bar.n)

    try:
        yield tick
    finally:
        bar.close()


def _check_differ(settings: Settings, names: Iterable[str]) -> None:
    """`UserError` where two names are one method with the same parameters."""
    known: dict[str, str] = {}
    for name in names:
        method, own = config.variant(settings, name)
        how = method + own.model_dump_json(exclude={"bench": {"methods", "variants"}})
        if how in known:
            raise UserError(f"bench.variants: '{known[how]}' and '{name}' are the same; leave one out")
        known[how] = name


class Methods(Mapping[str, decoding.Method]):
    """Methods by name. The models are loaded when a method is first asked for: to put parts together needs none."""

    def __init__(self, names: list[str], settings: Settings, probes: dict[str, Any]):
        self.names, self.settings, self.probes = names, settings, probes

    @cached_property
    def engines(self) -> dict[str, Engine]:
        """{role: its model}, None left out."""
        return {r: m for r, m in zip(ROLES, load_models(self.settings, self.names), strict=True) if m is not None}

    @cached_property
    def built(self) -> dict[str, decoding.Method]:
        draft, target = self.engines.get("draft"), self.engines["target"]
        own = {name: config.variant(self.settings, name) for name in self.names}
        return {name: decoding.build(method, s, draft, target, self.probes) for name, (method, s) in own.items()}

    def __getitem__(self, name: str) -> decoding.Method:
        return self.built[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.names)

    def __len__(self) -> int:
        return len(self.names)


@contextmanager
def _alone(out: Path, part: runner.Part) -> Iterator[None]:
    """Hold `out` against a second bench, or a second one of the same part; parts and the whole exclude each other."""
    out.mkdir(parents=True, exist_ok=True)
    whole, lock = part == runner.WHOLE, out / ".lock"
    patience = ASKING_S if whole else DYING_S
    try:
        with FileLock(lock if whole else f"{lock}.{part[0]}-{part[1]}").acquire(timeout=patience):
            for other in sorted(out.glob(".lock.*")) if whole else [lock]:
                with FileLock(other).acquire(timeout=patience):  # asked only: another part asks too
                    pass
            yield
    except Timeout:
        raise UserError(f"another bench is writing into {out}; wait for it, or choose another --out") from None


def bench(
    settings: Settings, root: Path, out: Path, data_dir: Path | None = None, part: runner.Part = runner.WHOLE
) -> dict[str, Any]:
    """Run `settings.bench`, or a part of its problems, and write its files into `out`; returns the summary."""
    with _alone(out, part):
        return _bench(settings, root, out, data_dir, part)


def _bench(settings: Settings, root: Path, out: Path, data_dir: Path | None, part: runner.Part) -> dict[str, Any]:
    chosen, own = settings.bench, out.resolve() == (root / runner.BENCH).resolve()
    if (out / "dvc.yaml").exists() or out.resolve() == root.resolve():
        raise UserError(f"{out} is a project, with parameters of its own; choose another --out")
    problems = load(chosen.dataset, "test", chosen.limit, settings.seed, data_dir)
    names: list[str] = list(dict.fromkeys([*chosen.methods, *chosen.variants]))
    _check_differ(settings, names)
    probes = load_probes(settings, root, names)
    folders = _folders(settings, root, names)
    for folder in folders.values():
        project = next((p for p in folder.resolve().parents if (p / config.PARAMS).exists()), root)
        check_apart(str(project / _domain(folder)), chosen.dataset)
    methods = Methods(names, settings, probes)
    made_of = {
        "dataset": chosen.dataset,
        "dataset_sha256": dataset_id(problems),
        "dataset_source": source(chosen.dataset, "test", data_dir),
        "probes": {name: _of_probes(folder) for name, folder in folders.items()},
        "draft": settings.models.draft,
        "target": settings.models.target,
        **{f"{role}_weights": engine.number_format(settings.engine.of(role)) for role in ROLES},
    }
    identity = _identity(settings, root, names)
    with _bar(len(range(part[0] - 1, len(problems), part[1])) * chosen.repeats * len(names)) as tick:
        summary = runner.run(
            settings,
            methods,
            problems,
            out,
            tick,
            identity=identity,
            provenance=made_of,
            part=part,
            passes=lambda: {role: model.passes for role, model in methods.engines.items()},
        )
    if part != runner.WHOLE:
        print(f"bench: part {part[0]} of {part[1]} is made; the same without --part puts the parts together")
    elif not own:  # there the project's parameters are the record
        config.write(out, settings)
    return summary

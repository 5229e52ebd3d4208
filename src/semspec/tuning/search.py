"""One search: where its trials are kept, what a trial measures, and what is left when a process is killed.

Trials lie in Optuna's journal, one line an event, which any number of processes may append to. A process that dies
leaves its trial RUNNING: whoever comes next fails it and queues its parameters again. Knows Optuna; knows nothing of
Prefect or MLflow.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from filelock import FileLock

from semspec import config, files, schema
from semspec.bench.metrics import pareto
from semspec.errors import UserError
from semspec.planning.cost import Cost
from semspec.problems import Problem
from semspec.schema import Settings
from semspec.tuning import material, space
from semspec.tuning.fits import Fits, kept_by_layer
from semspec.tuning.trees import Outcome, Tree, loader, outcome, questions

if TYPE_CHECKING:
    import optuna

JOURNAL = "journal.log"
APPLIED = "applied.json"  # of a winner, by `--apply`: {"section.name": value}
MISSING = 0.1  # a trial that lost a larger share of the questions is not feasible
FREE = frozenset({"trials", "workers", "live", "live_seeds", "extend"})  # of `tune`: may change between two calls


def folder(root: Path, name: str) -> Path:
    """Where the search `name` keeps everything about it."""
    return root / "results/tune" / name


def begin(root: Path, name: str, settings: Settings) -> Path:
    """The search's folder, with its settings; `UserError` when it was begun with other ones.

    What its own winner changed in params.yaml makes no other search, be it the last or the one that was applied: it
    goes on from where it began.
    """
    out = folder(root, name)
    path = out / "settings.json"
    if path.exists():
        begun = config.validate(files.read_json(path), str(path))
        if _fixed(begun) != _fixed(settings):
            own = [applied(root, name), (winner_of(root, name) or {}).get("overrides", {})]
            if _fixed(settings) not in [_fixed(changed(begun, overrides)) for overrides in own]:
                raise UserError(
                    f"the search '{name}' was begun with other parameters; give this one another --name, or delete "
                    f"{out.relative_to(root)}"
                )
            settings = begun.model_copy(update={"tune": settings.tune})
    files.write_json(path, settings.model_dump(mode="json"))
    _mend(out / JOURNAL)
    return out


def winner_of(root: Path, name: str) -> dict[str, Any] | None:
    """The winner in results.json; None where there is none, or no such file yet."""
    path = folder(root, name) / "results.json"
    found = files.read_json(path)["winner"] if path.exists() else None
    return None if found is None else dict(found)


def applied(root: Path, name: str) -> dict[str, Any]:
    """What the search has changed in params.yaml; {} before its first winner is applied."""
    path = folder(root, name) / APPLIED
    return files.read_json(path) if path.exists() else {}


def _mend(journal: Path) -> None:
    """Drop a line that a crash has torn: Optuna would write behind it and read neither."""
    text = journal.read_bytes() if journal.exists() else b""
    if text and not text.endswith(b"\n"):
        os.truncate(journal, text.rfind(b"\n") + 1)


def _fixed(settings: Settings) -> dict[str, Any]:
    data = settings.model_dump(mode="json", exclude={*schema.ASIDE - {"tune"}, "report"})
    data["tune"] = {k: v for k, v in data["tune"].items() if k not in FREE}
    return data


def combined(pass_at_1: float, ratio: float, price: float) -> float:
    """Quality and speed as one number; ratio: latency / latency(target)."""
    return pass_at_1 - price * ratio


def changed(settings: Settings, overrides: Mapping[str, Any]) -> Settings:
    """`settings` with `section.name` values put in."""
    data = settings.model_dump(mode="json")
    for dotted, value in overrides.items():
        config.put(data, dotted, value)
    return config.validate(data, "the trial's parameters")


@dataclass
class Searcher:
    """Runs configurations by replay. Everything that costs is made once and kept."""

    root: Path
    settings: Settings
    cost: Cost
    problems: list[Problem] = field(default_factory=list)
    pair: Any = None
    trees: dict[str, Tree] = field(default_factory=dict)
    fits: dict[Path, Fits] = field(default_factory=dict)
    _target: dict[str, Outcome] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.problems = self.problems or questions(self.settings)
        self.pair = self.pair or loader(self.settings)
        # what the project's samples and labels were made with: an applied winner may have changed them
        self.made = config.load(self.root) if (self.root / config.PARAMS).exists() else self.settings

    def tree(self, settings: Settings) -> Tree:
        split = settings.text.split
        if split not in self.trees:
            self.trees[split] = Tree.of(settings, self.root, self.problems, self.pair)
        return self.trees[split]

    def probes(self, settings: Settings, whole: bool = False) -> dict[str, Any]:
        where = material.folder(settings, self.made, self.root)
        if where not in self.fits:
            self.fits[where] = Fits(self.root / "data/tune/fits", where)
        return self.fits[where].probes(settings, whole)

    def ranking(self) -> dict[str, list[float]]:
        """Scores of single layers, from cross-labels, which every sample has."""
        crossed = changed(self.settings, {"cluster.labels": "cross"})
        where = material.folder(crossed, self.made, self.root)
        return kept_by_layer(crossed, where, self.root / "data/tune/fits")

    def n_layers(self) -> dict[str, int]:
        return {role: e.n_layers for role, e in self.tree(self.settings).engines.items()}

    def target(self, settings: Settings) -> Outcome:
        """The target alone, under the same prompt and budget."""
        split = settings.text.split
        if split not in self._target:
            tree = self.tree(settings)
            self._target[split] = outcome(tree, tree.method("target", settings), self.cost)
        return self._target[split]

    def run(self, overrides: Mapping[str, Any]) -> dict[str, Any]:
        """Figures of one configuration; `ratio` is its latency over the target's, `combined` both in one."""
        settings = changed(self.settings, overrides)
        tree = self.tree(settings)
        found = outcome(tree, tree.method("semantic", settings, self.probes(settings)), self.cost)
        # always against the target as params.yaml has it: another split must not move the goal
        ratio = found.latency_s / max(self.target(self.settings).latency_s, 1e-12)
        both = combined(found.pass_at_1, ratio, self.settings.tune.price)
        return asdict(found) | {"ratio": ratio, "combined": both}


def open_study(out: Path, settings: Settings, seed: int = 0) -> optuna.Study:
    """The study in `out`, made on first use. seed: of this process's sampler."""
    import optuna
    from optuna.storages import JournalStorage
    from optuna.storages.journal import JournalFileBackend

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    out.mkdir(parents=True, exist_ok=True)
    path = out / JOURNAL
    directions = ["maximize", "minimize"] if settings.tune.objective == "pareto" else ["maximize"]
    with FileLock(out / ".ask.lock"):
        study = optuna.create_study(
            study_name="tune",
            # a lock that the system lets go of when its process dies; Optuna's own would be waited for, half a minute
            storage=JournalStorage(JournalFileBackend(str(path), lock_obj=FileLock(f"{path}.lock"))),
            directions=directions,
            load_if_exists=True,
        )
    # a sampler that starts again with the same seed would draw the same first trials again
    study.sampler = optuna.samplers.TPESampler(
        multivariate=True, constant_liar=True, n_startup_trials=8, seed=settings.seed + seed + len(study.trials)
    )
    return study


def requeue(study: optuna.Study) -> int:
    """Fail the trials of processes that are gone and queue their parameters again; how many there were."""
    from optuna.trial import TrialState

    lost = 0
    for trial in study.get_trials(deepcopy=False, states=(TrialState.RUNNING,)):
        if not _alive(trial.user_attrs.get("process")):
            study.tell(trial.number, state=TrialState.FAIL)
            study.enqueue_trial(trial.params, user_attrs={"again": trial.number})
            lost += 1
    return lost


def _alive(process: Sequence[float] | None) -> bool:
    """Whether the process with this number and start time runs here; a number alone may have a new owner."""
    import psutil

    if process is None:
        return False
    try:
        return abs(psutil.Process(int(process[0])).create_time() - process[1]) < 1
    except psutil.Error:
        return False


def _ask(study: optuna.Study, out: Path, settings: Settings, suggest: Callable[[Any], dict[str, Any]]) -> Any:
    """The next trial and its changes, or None when enough are done or under way."""
    import psutil
    from optuna.trial import TrialState

    with FileLock(out / ".ask.lock"):
        requeue(study)
        taken = study.get_trials(deepcopy=False, states=(TrialState.COMPLETE, TrialState.RUNNING))
        if len(taken) >= settings.tune.trials:
            return None
        trial = study.ask()
        trial.set_user_attr("process", [os.getpid(), psutil.Process().create_time()])
        return trial, suggest(trial)


def work(
    study: optuna.Study,
    out: Path,
    searcher: Searcher,
    done: Callable[[optuna.trial.FrozenTrial], None] = lambda trial: None,
) -> int:
    """Run trials until there are `tune.trials`; how many this process finished. `done` gets each finished trial."""
    settings, finished = searcher.settings, 0
    n_layers = searcher.n_layers()
    while True:
        asked = _ask(study, out, settings, lambda t: space.suggest(t, settings, n_layers, searcher.ranking))
        if asked is None:
            break
        trial, overrides = asked
        trial.set_user_attr("overrides", overrides)
        found = searcher.run(overrides)
        for name, value in found.items():
            trial.set_user_attr(name, value)
        trial.set_constraint("missing", found["missing"] - MISSING)
        if settings.tune.latency_limit is not None:
            trial.set_constraint("latency", found["ratio"] - settings.tune.latency_limit)
        both = settings.tune.objective == "pareto"
        done(study.tell(trial, [found["pass_at_1"], found["latency_s"]] if both else found["combined"]))
        finished += 1
    return finished


@dataclass(frozen=True)
class Found:
    """One finished trial, as plain data."""

    number: int
    overrides: dict[str, Any]
    pass_at_1: float
    latency_s: float
    ratio: float
    combined: float
    missing: float
    params: dict[str, Any]

    def feasible(self, settings: Settings) -> bool:
        limit = settings.tune.latency_limit
        return self.missing <= MISSING and (limit is None or self.ratio <= limit)


def results(study: optuna.Study) -> list[Found]:
    """Every completed trial, in order."""
    from optuna.trial import TrialState

    names = ("overrides", "pass_at_1", "latency_s", "ratio", "combined", "missing")
    trials = study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
    return [Found(t.number, **{n: t.user_attrs[n] for n in names}, params=dict(t.params)) for t in trials]


def front(found: Sequence[Found]) -> list[Found]:
    """Those that no other equals or beats in both Pass@1 and latency, fastest first; of equals the first."""
    kept: dict[tuple[float, float], Found] = {}
    for trial in found:
        kept.setdefault((trial.pass_at_1, trial.latency_s), trial)
    by_name = {str(t.number): t for t in kept.values()}
    return [by_name[n] for n in pareto({n: asdict(t) for n, t in by_name.items()})]


def best(found: Sequence[Found], settings: Settings) -> Found | None:
    """The feasible trial with the highest `combined`, the first of equals; it lies on the front."""
    allowed = [t for t in found if t.feasible(settings)]
    return max(allowed, key=lambda t: (t.combined, -t.number), default=None)


def shortlist(found: Sequence[Found], settings: Settings, k: int) -> list[Found]:
    """`k` different feasible trials, front after front, so that the fast and the good are both among them.

    The best one by `combined` comes first; where a front has more than are wanted, they are spread along it.
    """
    first = best(found, settings)
    if first is None:
        return []
    chosen, left = [first], [t for t in found if t.feasible(settings)]
    while left and len(chosen) < k:
        layer = front(left)
        values = {(t.pass_at_1, t.latency_s) for t in layer}
        left = [t for t in left if (t.pass_at_1, t.latency_s) not in values]
        others = [t for t in layer if (t.pass_at_1, t.latency_s) != (first.pass_at_1, first.latency_s)]
        wanted = min(k - len(chosen), len(others))
        if wanted:
            chosen += [others[i] for i in np.unique(np.linspace(0, len(others) - 1, wanted).round().astype(int))]
    return chosen[:k]

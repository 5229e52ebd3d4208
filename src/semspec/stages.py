"""The stages of the pipeline by name: what dvc.yaml and `semspec stage NAME` run.

Each is a function from files and settings to files, importable without loading anything heavy. This module only says
which package does the work; it knows nothing of DVC, Prefect or MLflow.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

from semspec.files import read_parquet, sha256, write_json, write_parquet
from semspec.schema import Settings


def models(settings: Settings, root: Path) -> None:
    """Fetch, verify and convert the models; write what identifies them to data/models/ROLE.json.

    The pair of the small world is not fetched but trained, where it is missing or its recipe has changed.
    """
    from semspec.models import TRAINED, describe, ensure

    if TRAINED.keys() & {settings.models.draft, settings.models.target}:
        from semspec.world.models import ensure_pair

        ensure_pair()
    for role in ("encoder", "draft", "target"):
        name = getattr(settings.models, role)
        weights = role == "encoder" or settings.engine.of(role).kind != "sglang"  # its server has its own
        ensure(name, settings.models.trust_remote_code, weights=weights)
        write_json(root / f"data/models/{role}.json", describe(name, weights))


def entailment(settings: Settings, root: Path) -> None:
    """Fine-tune the cross-encoder of `cluster`; where `cluster` asks for another model, say so in a small file."""
    folder = root / "data/entailment"
    if settings.cluster.entailment != "crossencoder":
        shutil.rmtree(folder, ignore_errors=True)
        write_json(folder / "calibration.json", {})
        return
    from tqdm import tqdm

    from semspec.models import ensure
    from semspec.semantics.crossencoder import make

    encoder, trust = settings.models.encoder, settings.models.trust_remote_code
    with tqdm(total=settings.crossencoder.steps, desc="entailment", unit="batch") as bar:
        found = make(
            ensure(encoder, trust),
            folder,
            settings.crossencoder,
            settings.seed,
            trust,
            lambda done, total: bar.update(done - bar.n),
        )
    print(f"entailment: F1 {found['f1']['gate and model']:.3f} on {found['pairs']} held-out pairs, behind the gate")


def contexts(settings: Settings, root: Path) -> None:
    from semspec.semantics.sampling import make_contexts

    make_contexts(settings, root)


def sample(settings: Settings, root: Path, part: tuple[int, int] = (1, 1)) -> None:
    from semspec.semantics.sampling import sample

    sample(settings, root, part)


def cluster(settings: Settings, root: Path) -> None:
    """Cluster the samples of each context by meaning; write their semantic probabilities."""
    from tqdm import tqdm

    from semspec.semantics.entailment import build
    from semspec.semantics.labels import SAMPLES, make_labels

    samples = read_parquet(root / "data/samples/samples.parquet")
    table = read_parquet(root / "data/contexts.parquet")
    entailment = build(settings, root)
    with tqdm(total=table["context_id"].nunique(), desc="cluster", unit="context") as bar:
        labels = make_labels(
            samples, table, entailment, settings.cluster.labels, lambda done, total: bar.update(done - bar.n)
        )
    labels.attrs[SAMPLES] = sha256(root / "data/samples/samples.parquet")
    write_parquet(root / "data/labels.parquet", labels)


def train(settings: Settings, root: Path) -> None:
    from semspec.probe.training import train_stage

    train_stage(settings, root)


def bench(settings: Settings, root: Path, part: tuple[int, int] = (1, 1)) -> None:
    from semspec.bench import runner
    from semspec.bench.command import bench

    bench(settings, root, root / runner.BENCH, part=part)


def truth(settings: Settings, root: Path) -> None:
    """Labels, probes and decisions against the truth, where the truth can be computed."""
    from semspec.world.report import truth_stage

    truth_stage(settings, root)


def report(settings: Settings, root: Path) -> None:
    from semspec.report import build

    build(settings, root)


STAGES: dict[str, Callable[..., None]] = {
    f.__name__: f for f in (models, entailment, contexts, sample, cluster, train, bench, truth, report)
}

"""The samples and labels that a trial's probes are trained from.

Other labels, or steps that end elsewhere, need their own. They are made by the pipeline's stages in a folder of their
own, when first asked for, and linked from the project where nothing differs. Knows folders; knows nothing of probes.
"""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

from filelock import FileLock

from semspec import files, stages
from semspec.schema import Settings

SAMPLES = ("contexts.parquet", "samples/samples.parquet", "samples/draft.safetensors", "samples/target.safetensors")
MADE_OF = "entailment/model.safetensors"  # where `cluster` asks the cross-encoder that the project has made
SAMPLED_BY = ("seed", "models", "engine", "text", "contexts", "sample")
READ_BY = (*SAMPLED_BY, "cluster")
DONE = "done.json"


def _of(settings: Settings, sections: tuple[str, ...]) -> str:
    return json.dumps(settings.model_dump(mode="json", include=set(sections)), sort_keys=True)


def folder(settings: Settings, base: Settings, root: Path) -> Path:
    """A project folder whose data/ fits `settings`: `root` itself where the parameters are those of `base`."""
    if _of(settings, READ_BY) == _of(base, READ_BY):
        return root
    made = root / "data/tune/material" / files.digest(_of(settings, READ_BY) + _sources(settings, root))
    made.mkdir(parents=True, exist_ok=True)
    with FileLock(made / ".lock"):
        if not (made / DONE).exists():
            _make(settings, base, root, made)
            files.write_json(made / DONE, {"seed": settings.seed, "text": settings.text.split})
    return made


def _sources(settings: Settings, root: Path) -> str:
    """What labels are made from, beyond parameters."""
    read = [*SAMPLES[:2], *([MADE_OF] if settings.cluster.entailment == "crossencoder" else [])]
    return "".join(files.sha256(files.present(root / "data" / name)) for name in read)


def _link(name: str, root: Path, made: Path) -> None:
    """The project's file or folder, below data/, in place of one of its own."""
    target = made / "data" / name
    target.parent.mkdir(parents=True, exist_ok=True)
    target.unlink(missing_ok=True)
    target.symlink_to(os.path.relpath(root / "data" / name, target.parent))


def _make(settings: Settings, base: Settings, root: Path, made: Path) -> None:
    (made / "data/models").mkdir(parents=True, exist_ok=True)
    for path in (root / "data/models").glob("*.json"):
        shutil.copy(path, made / "data/models" / path.name)
    if _of(settings, SAMPLED_BY) == _of(base, SAMPLED_BY):
        for name in SAMPLES:
            _link(name, root, made)
    else:
        stages.contexts(settings, made)
        stages.sample(settings, made)
    _link("entailment", root, made)  # nothing of it is searched
    stages.cluster(settings, made)

"""The registry of probes: one version per distinct bundle, `champion` on the best that was measured.

The model is code plus safetensors (see pyfunc_model.py): it loads with pickle refused, in a process that has
nothing but the listed packages, because the package's own source travels with it.
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import tempfile
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import semspec
from semspec import provenance
from semspec.tracking import bundle as bundles
from semspec.tracking import mlflow_log

if TYPE_CHECKING:
    from mlflow.models import ModelSignature
    from mlflow.tracking import MlflowClient

    from semspec.config import Settings

ALIAS = "champion"
MD5_TAG = "semspec.bundle"
BENCH_TAG = "semspec.bench"
SCORE_TAG = "semspec.pass_at_1"
REQUIREMENTS = ("mlflow", "numpy", "pandas", "pydantic", "ruamel.yaml", "safetensors")


def model_name(settings: Settings) -> str:
    """`semspec-DRAFT-TARGET` of letters, digits, dots and dashes only (a folder's last part is its name)."""
    parts = [Path(name).name for name in (settings.models.draft, settings.models.target)]
    return "-".join(["semspec", *(re.sub(r"[^A-Za-z0-9.-]+", "-", p).strip("-") for p in parts)]).lower()


def _bench_key(settings: Settings) -> str:
    """Equal for two runs whose Pass@1 was measured on the same problems."""
    problems = [settings.bench.dataset, settings.bench.limit, settings.seed, settings.bench.max_tokens]
    return hashlib.sha256(json.dumps(problems).encode()).hexdigest()[:16]


def _score(bundle: dict[str, Any]) -> float | None:
    return bundle["metrics"].get("bench", {}).get("semantic", {}).get("pass_at_1")


def beats(tags: dict[str, str], champion: dict[str, str] | None) -> bool:
    """Whether a version may take the alias: unless the champion did better on the same problems."""
    if champion is None or champion.get(BENCH_TAG) != tags[BENCH_TAG]:
        return True
    return float(tags.get(SCORE_TAG, "-1")) >= float(champion.get(SCORE_TAG, "-1"))


def _requirements() -> list[str]:
    from importlib.metadata import version

    return [f"{name}=={version(name)}" for name in REQUIREMENTS]


def _signature() -> ModelSignature:
    from mlflow.models import ModelSignature
    from mlflow.types.schema import Array, ColSpec, DataType, Schema

    inputs = [
        ColSpec(DataType.string, "role"),
        ColSpec(Array(DataType.double), "hidden"),
        ColSpec(Array(DataType.double), "logprob"),
    ]
    return ModelSignature(inputs=Schema(inputs), outputs=Schema([ColSpec(DataType.double, "probability")]))


def _find(client: MlflowClient, name: str, md5: str) -> str | None:
    found = client.search_model_versions(f"name = '{name}'")
    return next((str(v.version) for v in found if v.tags.get(MD5_TAG) == md5), None)


def _champion(client: MlflowClient, name: str) -> dict[str, str] | None:
    from mlflow.exceptions import MlflowException

    try:
        return dict(client.get_model_version_by_alias(name, ALIAS).tags)
    except MlflowException:
        return None


def register(root: Path, settings: Settings, run_id: str) -> str:
    """Register the present probes under the run; returns the version, an old one if this bundle has one."""
    client = mlflow_log.client(root, settings)
    import mlflow
    from mlflow.exceptions import MlflowException

    name = model_name(settings)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary) / "bundle"
        bundle = bundles.make_bundle(root, settings, folder)
        md5 = bundles.md5(folder)
        known = _find(client, name, md5)
        if known is not None:
            return known
        model, code = Path(temporary) / "model", Path(temporary) / "pyfunc_model.py"
        shutil.copyfile(Path(__file__).with_name(code.name), code)  # MLflow writes down where it was
        with warnings.catch_warnings():
            # it asks for an input example: a real one is tens of thousands of numbers
            warnings.simplefilter("ignore", UserWarning)
            mlflow.pyfunc.save_model(
                path=str(model),
                python_model=str(code),
                artifacts={"bundle": str(folder)},
                code_paths=[str(Path(semspec.__file__).parent)],
                signature=_signature(),
                pip_requirements=_requirements(),
            )
        client.log_artifacts(run_id, str(model), "model")
    try:
        client.create_registered_model(name, description="Semantic probability probes of a draft and a target model.")
    except MlflowException as e:
        if e.error_code != "RESOURCE_ALREADY_EXISTS":
            raise
    tags = {
        MD5_TAG: md5,
        BENCH_TAG: _bench_key(settings),
        "semspec.profile": settings.profile,
        "semspec.params_sha256": provenance.params_sha256(settings),
    }
    score = _score(bundle)
    if score is not None:
        tags[SCORE_TAG] = str(score)
    source = f"{client.get_run(run_id).info.artifact_uri}/model"
    version = str(client.create_model_version(name, source=source, run_id=run_id, tags=tags).version)
    if beats(tags, _champion(client, name)):
        client.set_registered_model_alias(name, ALIAS, version)
    return version

"""What a server serves: settings and probes, from a registered version, a bundle's folder, or the project itself.

A bundle says which models its probes were trained with and how to decode; params.yaml, where there is one, gives the
rest (engine, exact, baselines, serve). The models' bytes are compared with the bundle's hashes, since a probe says
nothing about another model's states. Loads no language model.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from semspec import config, schema
from semspec.bench.command import ROLES, load_probes, read_probes
from semspec.decoding.semantic import Semantic
from semspec.decoding.target import Target
from semspec.errors import UserError
from semspec.files import read_json, sha256
from semspec.models import ensure
from semspec.models.store import ENCODER
from semspec.probe import conditions
from semspec.schema import Settings
from semspec.tracking import bundle as bundles
from semspec.tracking import mlflow_log
from semspec.tracking.registry import DIGEST_TAG, listed, model_name

BARE = {"models": {"draft": "", "target": "", "encoder": ENCODER}, "text": {"system": ""}}  # without a params.yaml
_REFERENCE = re.compile(r"models:/([^/@]+)(?:@([^/@]+)|/(\d+))")


@dataclass(frozen=True)
class Served:
    """name: the model's id in the API; probes: as `decoding.build` takes them, empty where nothing is trained yet."""

    name: str
    settings: Settings
    probes: dict[str, Any]


def read(reference: str | None, root: Path, overrides: Sequence[str] = (), method: str = Target.name) -> Served:
    """Of `models:/NAME@ALIAS`, `models:/NAME/VERSION`, a bundle's folder, or (None) the project in `root`.

    Overrides (`section.name=value`) win over the bundle, and the bundle over params.yaml. `UserError` when it is not
    there, its models are not those that would be loaded, or the project has no probes and `method` needs them.
    """
    present = reference is None or (root / config.PARAMS).exists()
    base = config.load(root) if present else config.validate(BARE)
    settings = _settings(base, {}, overrides)
    if reference is None:
        trained = (root / "data/probes/draft/config.json").exists()
        probes = load_probes(settings, root, [method, *([Semantic.name] if trained else [])])
        return Served(model_name(settings), settings, probes)
    with _folder(reference, root, settings) as folder:
        bundle = read_json(folder / "bundle.json")
        if bundle.get("format") != bundles.FORMAT:
            raise UserError(f"{reference} is no bundle of this version; register the probes again with `semspec run`")
        bundles.check(folder, bundle, reference)
        settings = _settings(base, _of_bundle(base, bundle), overrides)
        probes = read_probes(folder / "probes", settings)
        for role in ROLES:
            conditions.check(probes[role].config.get("trained_on", {}), settings, folder, role)
    check_models(bundle, settings)
    registered = _REFERENCE.fullmatch(reference)
    return Served(registered[1] if registered else model_name(settings), settings, probes)


def _settings(base: Settings, bundle: dict[str, Any], overrides: Sequence[str]) -> Settings:
    """params.yaml's, what the bundle says on top, the command line's on top of that."""
    data = base.model_dump()
    for dotted, value in [*bundle.items(), *map(config.parse_override, overrides)]:
        config.put(data, dotted, value)
    return config.validate(data, "the settings")


def _of_bundle(base: Settings, bundle: dict[str, Any]) -> dict[str, Any]:
    """{dotted name: value} of all that a bundle decides; a folder of params.yaml stands for a model of its name."""
    decoding, out = bundle["decoding"], {}
    for role in ROLES:
        name, here = bundle["models"][role]["name"], getattr(base.models, role)
        out[f"models.{role}"] = here if Path(here).name == name else name
    places = {
        "decide": schema.Decide.model_fields,
        "text": ("split", "max_step_tokens", "system"),
        "bench": ("gamma", "temperature", "top_p"),
        "engine": ("weights",),
    }
    return out | {f"{s}.{n}": decoding[n] for s, names in places.items() for n in names if n in decoding}


def check_models(bundle: dict[str, Any], settings: Settings) -> None:
    """Compare every file of both models with the bundle's SHA-256; `UserError` that says which differs."""
    for role in ROLES:
        name, served = getattr(settings.models, role), settings.engine.of(role).kind == "sglang"
        hint = f"name the model that the probes were trained with: --set models.{role}=FOLDER"
        try:
            folder = ensure(name, settings.models.trust_remote_code, weights=not served)
        except UserError as e:
            raise UserError(f"the bundle's {role} can't be had: {e}; or {hint}") from None
        folder = folder.parent if folder.is_file() else folder  # a GGUF file is a model by itself
        for file, wanted in sorted(bundle["models"][role].get("files", {}).items()):
            if served and file.endswith(".safetensors"):
                continue  # the server has the weights
            found = sha256(folder / file) if (folder / file).is_file() else "missing"
            if found != wanted:
                raise UserError(
                    f"the {role} {name} is not the bundle's: {file} has SHA-256 {found[:16]}, not {wanted[:16]}; {hint}"
                )


@contextmanager
def _folder(reference: str, root: Path, settings: Settings) -> Iterator[Path]:
    """The folder with bundle.json while it is needed."""
    if reference.startswith("models:"):
        with tempfile.TemporaryDirectory() as temporary:
            yield _download(reference, root, settings, temporary)
        return
    places = (Path(reference), Path(reference) / "artifacts/bundle")  # the second: a model as MLflow keeps it
    found = next((f for f in places if (f / "bundle.json").is_file()), None)
    if found is None:
        raise UserError(f"{reference} holds no bundle.json; name a bundle's folder or models:/NAME@ALIAS")
    yield found


def _download(reference: str, root: Path, settings: Settings, into: str) -> Path:
    """The bundle of a registered version, as files in `into`."""
    match = _REFERENCE.fullmatch(reference)
    if match is None:
        raise UserError(f"'{reference}' is no registered model; write it as models:/NAME@ALIAS or models:/NAME/VERSION")
    name, alias, version = match.groups()
    address = mlflow_log.uri(root, settings)
    mlflow_log.check_database(address)
    client = mlflow_log.client(root, settings)
    import mlflow
    from mlflow.exceptions import MlflowException

    try:
        found = client.get_model_version_by_alias(name, alias) if alias else client.get_model_version(name, version)
        source = client.get_model_version_download_uri(name, found.version)
        listed(name, str(found.version), source, address)
        bundle = f"{source}/artifacts/bundle"
        folder = Path(mlflow.artifacts.download_artifacts(bundle, dst_path=into, tracking_uri=address))
    except (MlflowException, OSError) as e:
        reason = str(e).strip().splitlines()[0] if str(e).strip() else type(e).__name__
        said = f"{reference} can't be read from the registry at {address}: {reason}"
        raise UserError(config.without_secrets(said)) from None
    if bundles.md5(folder) != found.tags.get(DIGEST_TAG):
        raise UserError(
            f"the files of {reference} (version {found.version}) are not those that were registered; take another "
            "version (`semspec registry list`), or register the probes again with `semspec run`"
        )
    return folder

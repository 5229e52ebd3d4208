"""A model by name, as a folder to load from: fetched, checked and converted on first use.

Five kinds of name are understood: one of the catalogue, one of the two that are trained here (`TRAINED`), a local
folder, a local GGUF file, and a model-hub id (`org/name`, or `org/name@revision`). A model appears in the store whole
or not at all. Knows nothing of how a model is run.
"""

from __future__ import annotations

import difflib
import re
import shutil
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal

from semspec.errors import UserError
from semspec.files import read_json, sha256, write_json
from semspec.models import convert, fetch
from semspec.models.catalogue import CATALOGUE, Entry

MANIFEST = "manifest.json"
TRAINED = {"synthetic-draft": "synthetic/draft", "synthetic-target": "synthetic/target"}  # by the stage `models`
GGUF = ".gguf"
ENCODER = "all-minilm-l6-v2"  # the catalogue's only model that writes nothing
_HUB_ID = re.compile(r"[\w.-]+/[\w.-]+(@[\w./-]+)?")
_HUB_FILES = ["*.safetensors", "*.json", "*.jinja", "*.txt", "*.model", "LICENSE*"]
_HUB_NEVER = ["*.bin", "*.pt", "*.pth", "*.pkl", "*.h5", "*.msgpack", "consolidated*", "original/*", "onnx/*"]


def ensure(name: str, trust_remote_code: bool = False, progress: bool = True, weights: bool = True) -> Path:
    """The folder of model `name`: config.json, *.safetensors and the tokenizer. Fetches what is missing.

    For a local GGUF file: that file. weights=False, where a server has them: a hub model comes without its weights.

    A catalogue model that is already there is checked by file sizes only (`verify` reads every byte).
    `trust_remote_code` also fetches the Python files of a hub model. Raises `UserError`.
    """
    if name in CATALOGUE:
        if not installed(name):
            print(f"{name} is not here yet; fetching it into {_folder(name)}", file=sys.stderr)
            pull([name], progress)
        return _folder(name)
    if name in TRAINED:
        if not installed(name):
            raise UserError(f"{name} is not trained yet; run `semspec stage models`")
        return _folder(TRAINED[name])
    if name.endswith(GGUF):
        return gguf(name)
    local = _local(name)
    if local.is_dir():
        return _loadable(local, weights)
    if _HUB_ID.fullmatch(name) and not name.startswith("."):
        return _loadable(_snapshot(name, trust_remote_code, weights), weights)
    raise _unknown(name)


def gguf(name: str) -> Path:
    """The GGUF file of model `name`, as published; `UserError` when it can have none. Fetches nothing.

    A catalogue model's lies beside what was made of it, where `verify` looks for it too.
    """
    if name.endswith(GGUF):
        file = _local(name)
        if not file.is_file():
            raise UserError(f"the GGUF file '{name}' does not exist; check the path")
        return file
    if name not in CATALOGUE or CATALOGUE[name].kind != "gguf":
        known = ", ".join(n for n, entry in CATALOGUE.items() if entry.kind == "gguf")
        raise UserError(f"'{name}' has no GGUF file, which engine.kind llamacpp needs; use {known}, or a FILE.gguf")
    return _folder(name) / "gguf" / CATALOGUE[name].main.path


def pull(names: Iterable[str], progress: bool = True) -> list[Path]:
    """Fetch catalogue models, or mend them: what is there and wrong is replaced. Returns their folders."""
    entries = [_entry(n) for n in names]
    return [_pull(e, progress) for e in entries]


def installed(name: str) -> bool:
    """Whether a catalogue model is there, judged by its manifest and file sizes, or one that is trained here."""
    if name in TRAINED:
        return all((_folder(TRAINED[name]) / f).is_file() for f in ("config.json", "model.safetensors"))
    folder = _folder(name)
    try:
        manifest = read_json(folder / MANIFEST)
        return all((folder / f).stat().st_size == size for f, size in manifest["bytes"].items())
    except (UserError, OSError, KeyError, TypeError):
        return False


def layers(name: str) -> int | None:
    """How many layers a model has by its config.json; None where that is not on this machine yet, or says nothing."""
    known = name in CATALOGUE or name in TRAINED
    try:
        folder = _folder(TRAINED.get(name, name)) if known else _local(name)
        found = read_json(folder / "config.json").get("num_hidden_layers")
    except (UserError, OSError):
        return None
    return found if isinstance(found, int) else None


def mending(name: str) -> str:
    """What to do about a model that is there and can't be loaded, for an error's second half."""
    if name in CATALOGUE:
        return f"`semspec models pull {name}` mends what is spoiled"
    if name in TRAINED:
        return f"delete {_folder(TRAINED[name]).parent} and run `semspec stage models`"
    return "check its files"


def verify(name: str) -> None:
    """Read every file of a catalogue model again and compare SHA-256; raises `UserError` on a difference."""
    entry = _entry(name)
    _manifest(name)
    if wrong := _wrong(entry):
        raise UserError(f"{wrong} of {name} has wrong bytes; run `semspec models pull {name}` again")


def describe(name: str, weights: bool = True) -> dict[str, Any]:
    """What exactly `name` is: {"name", "source", "sha256" or "revision", "files": {file: sha256}}.

    No path of this machine is in it, so the same model gives the same bytes anywhere. Fetches nothing: call
    `ensure` first, with the same `weights`.
    """
    if name in CATALOGUE:
        manifest = _manifest(name)
        return {
            "name": name,
            "source": "catalogue",
            "sha256": manifest["source"]["sha256"],
            "files": manifest["files"],
        }
    if name in TRAINED:
        return {"name": name, "source": "trained", "files": _hashes(ensure(name))}
    if name.endswith(GGUF):
        file, digest = gguf(name), sha256(gguf(name))
        return {"name": file.name, "source": "file", "sha256": digest, "files": {file.name: digest}}
    folder = _local(name)
    if folder.is_dir():
        folder = folder.resolve()
        return {"name": folder.name, "source": "folder", "files": _hashes(folder)}
    record = _record(name, weights)
    if record is None:
        raise _unknown(name)
    return {"name": name, "source": "hub", "revision": record["revision"], "files": record["files"]}


# -- the catalogue


def _entry(name: str) -> Entry:
    if name not in CATALOGUE:
        raise _unknown(name)
    return CATALOGUE[name]


def check_name(name: str, kind: Literal["language model", "encoder"] = "language model", weights: bool = True) -> None:
    """`UserError` when `name` can be no model of that kind, or is a folder without one; fetches nothing.

    weights=False as in `ensure`.
    """
    if not name.strip():
        raise UserError("the name of a model is empty; `semspec models list` says which there are")
    if name in CATALOGUE:
        if (CATALOGUE[name].name == ENCODER) != (kind == "encoder"):
            raise UserError(f"'{name}' is no {kind}; `semspec models list` says what each model is")
    elif name in TRAINED:
        if kind == "encoder":
            raise UserError(f"'{name}' is no encoder; use {ENCODER}")
    elif name.endswith(GGUF):
        gguf(name)
        if kind == "encoder":
            raise UserError(f"'{name}' is no encoder; use {ENCODER}")
    elif _local(name).is_dir():
        _loadable(_local(name), weights)
    elif name.startswith((".", "/", "~")):
        raise UserError(f"the model folder '{name}' does not exist; check the path")
    elif not _HUB_ID.fullmatch(name):
        raise _unknown(name)


def _unknown(name: str) -> UserError:
    known = [*CATALOGUE, *TRAINED]
    close = difflib.get_close_matches(name.lower(), known, n=1, cutoff=0.4)
    hint = f"did you mean '{close[0]}'?" if close else f"known: {', '.join(known)}"
    return UserError(f"unknown model '{name}'; {hint} (a local folder or a hub id org/name works too)")


def _local(name: str) -> Path:
    """Where a local folder or file of that name would be."""
    try:
        return Path(name).expanduser()
    except RuntimeError:
        raise UserError(f"'{name}' is in the home of a user who does not exist; check the path") from None


def _folder(name: str) -> Path:
    return fetch.home() / "models" / name


def _manifest(name: str) -> dict[str, Any]:
    path = _folder(name) / MANIFEST
    if not path.is_file():
        raise UserError(f"{name} is not here yet; run `semspec models pull {name}`")
    return read_json(path)


def _wrong(entry: Entry) -> str | None:
    """The first file of an installed model that is not what it was, or None."""
    folder = _folder(entry.name)
    manifest = read_json(folder / MANIFEST)
    if manifest.get("source", {}).get("sha256") != entry.main.sha256:
        return MANIFEST
    for file, digest in manifest["files"].items():
        if not (folder / file).is_file() or sha256(folder / file) != digest:
            return str(file)
    return None


def _pull(entry: Entry, progress: bool) -> Path:
    folder = _folder(entry.name)
    with fetch.lock(entry.name):
        if installed(entry.name) and _wrong(entry) is None:
            return folder
        staging = folder.with_name(f".{entry.name}.partial")
        if folder.exists():  # spoiled: keep it only as a place to find published files that are still right
            shutil.rmtree(staging, ignore_errors=True)
            folder.rename(staging)
            (staging / MANIFEST).unlink(missing_ok=True)
        published = staging / "gguf" if entry.kind == "gguf" else staging
        published.mkdir(parents=True, exist_ok=True)
        fetch.fetch(entry, published, progress)
        if entry.kind == "gguf":
            convert.convert(published / entry.main.path, staging, entry.name, progress)
        write_json(
            staging / MANIFEST,
            {
                "name": entry.name,
                "source": {"file": entry.main.path, "sha256": entry.main.sha256},
                "files": _hashes(staging),
                "bytes": {f: (staging / f).stat().st_size for f in _files(staging)},
            },
        )
        staging.rename(folder)
    return folder


def _files(folder: Path) -> list[str]:
    """Files below `folder`, as sorted relative posix paths; hidden ones and the manifest left out."""
    found = (p.relative_to(folder) for p in folder.rglob("*") if p.is_file())
    return sorted(p.as_posix() for p in found if not any(x.startswith(".") for x in p.parts) and p.name != MANIFEST)


def _hashes(folder: Path) -> dict[str, str]:
    return {f: sha256(folder / f) for f in _files(folder)}


# -- folders and the hub


def _loadable(folder: Path, weights: bool = True) -> Path:
    if not (folder / "config.json").is_file():
        raise UserError(f"{folder} holds no config.json, so it is not a model folder; name one that transformers wrote")
    if weights and not any(folder.glob("*.safetensors")):
        raise UserError(f"{folder} holds no *.safetensors weights; save the model as safetensors (no pickle is loaded)")
    return folder


def _record_path(name: str, weights: bool) -> Path:
    return fetch.home() / "hub" / f"{name.replace('/', '--')}{'' if weights else '.no-weights'}.json"


def _record(name: str, weights: bool) -> dict[str, Any] | None:
    path = _record_path(name, weights)
    return read_json(path) if path.is_file() else None


def _snapshot(name: str, trust_remote_code: bool, weights: bool) -> Path:
    """The hub model's folder in Hugging Face's cache, at the commit recorded on first use."""
    import huggingface_hub

    repo, _, revision = name.partition("@")
    options: dict[str, Any] = {
        "allow_patterns": _HUB_FILES + (["*.py"] if trust_remote_code else []),
        "ignore_patterns": _HUB_NEVER + ([] if weights else ["*.safetensors"]),
    }
    record = _record(name, weights)
    if record and record["code"] >= trust_remote_code:
        try:
            folder = huggingface_hub.snapshot_download(
                repo, revision=record["revision"], local_files_only=True, **options
            )
            if all((Path(folder) / f).exists() for f in record["files"]):
                return Path(folder)
        except Exception:  # cleared from the cache: fetch the same commit again
            pass
    source = fetch.hub()
    if source is None:
        raise UserError(f"{name} is not on this machine and the model hub is switched off; unset HF_HUB_OFFLINE")
    try:
        if record:
            commit = record["revision"]
        else:
            commit = source.HfApi().model_info(repo, revision=revision or None, timeout=fetch.HUB_TIMEOUT).sha
        folder = Path(source.snapshot_download(repo, revision=commit, **options))
    except Exception as e:
        raise UserError(
            f"{name} could not be fetched from the model hub ({type(e).__name__}); check the name and "
            f"the network, or use a catalogue model ({', '.join(CATALOGUE)}) or a local folder"
        ) from None
    if weights and not any(folder.glob("*.safetensors")):
        raise UserError(f"{name} has no safetensors weights; semspec loads no pickled ones: choose another model")
    write_json(_record_path(name, weights), {"revision": commit, "code": trust_remote_code, "files": _hashes(folder)})
    return folder

"""What a probe's hidden states depend on, written down when it is trained and compared when it is used.

A probe is a function of one model's states, in one number format, over steps cut in one way. Used under other
conditions it still gives numbers, and they mean nothing. Knows files and settings; knows no probe's insides.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from semspec.engine import number_format
from semspec.errors import UserError
from semspec.files import read_json

if TYPE_CHECKING:
    from semspec.schema import Settings

WORDS = {
    "model_sha256": "weights with the SHA-256",
    "model_revision": "the model",
    "weights": "the number format",
    "split": "text.split",
}


def conditions(settings: Settings, root: Path, role: str) -> dict[str, Any]:
    """Model, number format, split and domain for `role`; the model's name, which of a folder is its last part, and its
    hash are None when its description is missing. Weights in several files have the hash of their hashes, those that
    only a server has none but a revision.
    """
    path = root / "data/models" / f"{role}.json"
    model = read_json(path) if path.exists() else {}
    hashes = sorted(digest for file, digest in model.get("files", {}).items() if file.endswith(".safetensors"))
    several = hashlib.sha256("".join(hashes).encode()).hexdigest()
    digest = model.get("sha256") or (hashes[0] if len(hashes) == 1 else several if hashes else None)
    revision = model.get("revision") if digest is None else None
    return {
        "model": model.get("name"),
        "model_sha256": digest,
        "model_revision": f"{_short(model['name'])}@{revision}" if revision else None,
        "weights": number_format(settings.engine.of(role)),
        "split": settings.text.split,
        "domain": settings.contexts.dataset,
    }


def _short(name: str) -> str:
    """A model's name without its owner and revision."""
    return name.partition("@")[0].rpartition("/")[2]


def check(trained: dict[str, Any], settings: Settings, root: Path, role: str) -> str | None:
    """Raise `UserError` when a probe trained under `trained` is to be used under other conditions.

    Another domain is allowed, and a sentence says so: how far a probe carries is a question one may ask.
    """
    now = conditions(settings, root, role)
    for key, words in WORDS.items():
        if trained.get(key) is not None and now[key] is not None and trained[key] != now[key]:
            raise UserError(
                f"the {role}'s probe was trained with {words} {trained[key]}, not {now[key]}; "
                "`semspec run` with these parameters (and the same --set) trains one"
            )
    unknown = trained.get("model_sha256") is None or now["model_sha256"] is None
    names = [m["model"] for m in (trained, now) if m.get("model")]
    if unknown and len({_short(name) for name in names}) > 1:
        raise UserError(f"the {role}'s probe was trained for {names[0]}, not {names[1]}; run `semspec run` first")
    if trained.get("domain") not in (None, settings.bench.dataset):
        return f"the {role}'s probe was trained on {trained['domain']}, and is used on {settings.bench.dataset}"
    return None

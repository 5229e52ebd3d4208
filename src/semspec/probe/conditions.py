"""What a probe's hidden states depend on, written down when it is trained and compared when it is used.

A probe is a function of one model's states, in one number format, over steps cut in one way. Used under other
conditions it still gives numbers, and they mean nothing. Knows files and settings; knows no probe's insides.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from semspec.engine import number_format
from semspec.errors import UserError
from semspec.files import read_json

if TYPE_CHECKING:
    from semspec.schema import Settings

WORDS = {
    "model_sha256": "weights with the SHA-256",
    "weights": "the number format",
    "split": "text.split",
}


def conditions(settings: Settings, root: Path, role: str) -> dict[str, Any]:
    """Model, number format, split and domain for `role`; the model's name, which of a folder is its last part, and its
    hash are None when its description is missing.
    """
    path = root / "data/models" / f"{role}.json"
    model = read_json(path) if path.exists() else {}
    return {
        "model": model.get("name"),
        "model_sha256": model.get("sha256") or model.get("files", {}).get("model.safetensors"),
        "weights": number_format(settings.engine.of(role)),
        "split": settings.text.split,
        "domain": settings.contexts.dataset,
    }


def check(trained: dict[str, Any], settings: Settings, root: Path, role: str) -> str | None:
    """Raise `UserError` when a probe trained under `trained` is to be used under other conditions.

    Another domain is allowed, and a sentence says so: how far a probe carries is a question one may ask.
    """
    now = conditions(settings, root, role)
    for key, words in WORDS.items():
        if trained.get(key) is not None and now[key] is not None and trained[key] != now[key]:
            raise UserError(
                f"the {role}'s probe was trained with {words} {trained[key]}, not {now[key]}; run `semspec run` first"
            )
    if trained.get("domain") not in (None, settings.bench.dataset):
        return f"the {role}'s probe was trained on {trained['domain']}, and is used on {settings.bench.dataset}"
    return None

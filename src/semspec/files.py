"""Reading and writing files so that nothing is ever half-written.

Every output is written under a temporary name in the same folder and renamed when it is complete; JSON has sorted
keys and tables carry no timestamps, so the same content has the same bytes. Knows formats, not contents.
"""

from __future__ import annotations

import glob
import hashlib
import json
import os
import re
import socket
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from semspec.errors import UserError

if TYPE_CHECKING:
    import pandas as pd


HOST = socket.gethostname().replace(".", "_")


def _alive(owner: str) -> bool:
    """Whether the process `HOST-PID` runs; true in doubt, so for one of another machine that shares the folder."""
    host, _, pid = owner.rpartition("-")
    if host != HOST:
        return True
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return False
    except (ValueError, OSError):
        return True
    return True


@contextmanager
def atomic(path: Path | str) -> Iterator[Path]:
    """Yield a temporary path beside `path`; rename it onto `path` on success, remove it on any error."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    for left in path.parent.glob(f".{glob.escape(path.stem)}.*.tmp{glob.escape(path.suffix)}"):
        if not _alive(left.name.removesuffix(f".tmp{path.suffix}").split(".")[-1]):  # of a process that was killed
            left.unlink(missing_ok=True)
    temporary = path.with_name(f".{path.stem}.{HOST}-{os.getpid()}.tmp{path.suffix}")
    try:
        yield temporary
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def present(path: Path | str) -> Path:
    """`path`, or a `UserError` when it is missing."""
    path = Path(path)
    if not path.exists():
        raise UserError(f"{path} is missing; an earlier stage writes it: run `semspec run` or `dvc repro`")
    return path


def write_json(path: Path | str, value: Any) -> None:
    with atomic(path) as t:
        t.write_text(json.dumps(value, sort_keys=True, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def read_json(path: Path | str) -> dict[str, Any]:
    path = present(path)
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except ValueError:  # not JSON, or not UTF-8
        raise UserError(f"{path} is not valid JSON; delete it and run its stage again") from None
    if not isinstance(value, dict):
        raise UserError(f"{path} is no JSON object; delete it and run its stage again")
    return value


def write_jsonl(path: Path | str, rows: Iterable[dict[str, Any]]) -> None:
    with atomic(path) as t, t.open("w", encoding="utf-8") as f:
        for row in rows:
            f.write(json.dumps(row, sort_keys=True, ensure_ascii=False) + "\n")


def read_jsonl(path: Path | str) -> list[dict[str, Any]]:
    rows = []
    try:
        text = present(path).read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise UserError(f"{path} is no UTF-8 text; save it as such") from None
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        try:
            rows.append(json.loads(line))
        except ValueError:
            raise UserError(f"{path} line {number} is not valid JSON; mend that line") from None
        if not isinstance(rows[-1], dict):
            raise UserError(f"{path} line {number} is not an object; mend that line")
    return rows


def write_parquet(path: Path | str, table: pd.DataFrame) -> None:
    with atomic(path) as t:
        table.to_parquet(t, index=False, compression="zstd")


def read_parquet(path: Path | str) -> pd.DataFrame:
    import pandas as pd
    from pyarrow import ArrowException

    path = present(path)
    try:
        return pd.read_parquet(path)
    except ArrowException:
        raise UserError(f"{path} is damaged; delete it and run its stage again") from None


@contextmanager
def system_errors(path: Path | str) -> Iterator[None]:
    """What safetensors says of a full disk, and the like, as the `OSError` that it was, of `path`."""
    from safetensors import SafetensorError

    try:
        yield
    except SafetensorError as e:  # what the system said is in its text alone
        said = re.search(r"os error (\d+)", str(e))
        if said is None:
            raise
        raise OSError(int(said[1]), os.strerror(int(said[1])), str(path)) from None


def write_safetensors(path: Path | str, tensors: dict[str, np.ndarray], metadata: dict[str, str] | None = None) -> None:
    """`OSError` when the disk is full."""
    from safetensors.numpy import save_file

    with atomic(path) as t, system_errors(path):
        save_file({k: np.ascontiguousarray(v) for k, v in tensors.items()}, t, metadata=metadata)


def save_model(model: Any, tokenizer: Any, folder: Path, **options: Any) -> None:
    """Both, of transformers, into `folder`; not atomic. `OSError` when the disk is full."""
    with system_errors(folder):
        model.save_pretrained(folder, **options)
        tokenizer.save_pretrained(folder)


def read_safetensors(path: Path | str) -> dict[str, np.ndarray]:
    from safetensors import SafetensorError
    from safetensors.numpy import load_file

    path = present(path)
    try:
        return load_file(path)
    except SafetensorError:
        raise UserError(f"{path} is damaged; delete it and run its stage again") from None


def digest(text: str) -> str:
    """A short name (16 hex digits) that belongs to a text alone."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def sha256(path: Path | str) -> str:
    """Hex SHA-256 of a file's bytes."""
    with Path(path).open("rb") as f:
        return hashlib.file_digest(f, "sha256").hexdigest()

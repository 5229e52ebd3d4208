"""What a model found out about texts, kept by hash on disk, so that no text is paid for twice.

A key is the hash of who answered (model and options) and of the texts in their order; a value is bytes. The file is
SQLite's and may be deleted at any time. It knows nothing of models or of what the bytes mean.
"""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Iterable, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from semspec.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Iterator

AT_ONCE = 500  # keys of one query


class Cache:
    """Values by key: in memory, and with a `path` on disk too. `identity` says who answers, options included.

    `UserError` when the file cannot be used.
    """

    def __init__(self, path: Path | None = None, identity: str = "") -> None:
        self.path, self.identity = path, identity
        self._memory: dict[bytes, bytes] = {}
        self._disk: sqlite3.Connection | None = None
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
            with self._explained():
                self._disk = sqlite3.connect(path, timeout=60)
                self._disk.execute("PRAGMA journal_mode = WAL")
                self._disk.execute("PRAGMA synchronous = NORMAL")  # a power cut may lose the last answers, no more
                self._disk.execute("CREATE TABLE IF NOT EXISTS kept (key BLOB PRIMARY KEY, value BLOB) WITHOUT ROWID")

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as e:
            raise UserError(f"{self.path} cannot be used ({e}); delete it, it only saves time, and run again") from None

    def key(self, *texts: str) -> bytes:
        """Of these texts in this order, for this identity."""
        parts = [p.encode("utf-8", "surrogatepass") for p in (self.identity, *texts)]
        return hashlib.sha256(b"".join(len(p).to_bytes(8, "big") + p for p in parts)).digest()

    def find(self, keys: Iterable[bytes]) -> dict[bytes, bytes]:
        """{key: value} of those that are kept."""
        wanted = list(dict.fromkeys(keys))
        missing = [k for k in wanted if k not in self._memory] if self._disk is not None else []
        for start in range(0, len(missing), AT_ONCE):
            part = missing[start : start + AT_ONCE]
            assert self._disk is not None
            with self._explained():
                places = ",".join("?" * len(part))
                found = self._disk.execute(f"SELECT key, value FROM kept WHERE key IN ({places})", part)
                self._memory.update(found)
        return {k: self._memory[k] for k in wanted if k in self._memory}

    def keep(self, values: Mapping[bytes, bytes]) -> None:
        """Add `values`; they are on disk when this returns."""
        self._memory.update(values)
        if self._disk is not None:
            with self._explained(), self._disk:
                self._disk.executemany("INSERT OR REPLACE INTO kept VALUES (?, ?)", values.items())

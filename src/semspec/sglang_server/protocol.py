"""How a request says which hidden states it wants, and how they come back. Standard library only: both sides use it.

SGLang hands a model nothing of a request but its tokens and its id, so the id carries the wish. Knows nothing of
models.
"""

from __future__ import annotations

import base64
import uuid
from collections.abc import Sequence
from typing import Any, NamedTuple

KEY = "semspec"  # where the answer stands in SGLang's `meta_info`
_MARK = "semspec"


class Wish(NamedTuple):
    """Pool the tokens from `bounds[i]` to `bounds[i + 1]` of the text, for each i, over `layers`, in this order."""

    bounds: tuple[int, ...]
    layers: tuple[int, ...]


def request_id(wish: Wish) -> str:
    """An id that no other request has, and that says `wish`."""
    bounds, layers = ("-".join(map(str, part)) for part in wish)
    return f"{_MARK}:{uuid.uuid4().hex}:{bounds}:{layers}"


def wish_of(request: str) -> Wish | None:
    """What a request id says; None where it is none of `request_id`."""
    mark, _, rest = request.partition(":")
    if mark != _MARK:
        return None
    _, bounds, layers = rest.split(":")
    return Wish(*(tuple(int(x) for x in part.split("-") if x) for part in (bounds, layers)))


def pack(counts: Sequence[int], shape: Sequence[int], states: bytes) -> dict[str, Any]:
    """counts: tokens that were pooled, one number a segment; states: little-endian fp32 of `shape`."""
    return {"counts": list(counts), "shape": list(shape), "states": base64.b64encode(states).decode()}


def unpack(found: dict[str, Any]) -> tuple[list[int], list[int], bytes]:
    """What `pack` was given."""
    return found["counts"], found["shape"], base64.b64decode(found["states"])

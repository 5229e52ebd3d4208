"""Whether the lines of a results.jsonl are answers: a file may be cut, edited, or an older version's.

Says what a reader can rely on; knows nothing of what is made of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    Field,
    FiniteFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    ValidationError,
)

from semspec.errors import UserError


def _encoded(text: str) -> str:
    """`ValueError` where a half of a character is in it."""
    text.encode()
    return text


Text = Annotated[str, AfterValidator(_encoded)]


class Priced(BaseModel):
    """An answer whose passes and seconds are known."""

    method: str = Field(min_length=1)
    latency_s: PositiveFloat = Field(allow_inf_nan=False)
    phases: dict[str, FiniteFloat]
    passes: dict[Literal["draft", "target"], dict[PositiveInt, NonNegativeInt]]


class _Step(BaseModel):
    author: str
    text: Text
    n_tokens: int
    p: FiniteFloat | None
    q: FiniteFloat | None
    a: FiniteFloat | None
    u: FiniteFloat | None


class Shown(BaseModel):
    """An answer that can be shown, step by step."""

    question: Text
    output: Text
    latency_s: FiniteFloat
    trace: list[_Step]


def check(rows: Iterable[Mapping[str, Any]], kind: type[BaseModel], path: Path) -> None:
    """`UserError` unless each of `rows`, the lines of `path`, is of that kind."""
    for number, row in enumerate(rows, 1):
        try:
            kind.model_validate(row)
        except ValidationError as error:
            found = error.errors()[0]
            where = ".".join(map(str, found["loc"]))
            raise UserError(
                f"{path} holds rows without what every metric needs (line {number}, {where}: {found['msg'].lower()}); "
                "run the bench again"
            ) from None

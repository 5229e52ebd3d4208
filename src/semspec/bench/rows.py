"""Whether the lines of a results.jsonl are answers: a file may be cut, edited, or an older version's.

Says what a reader can rely on; knows nothing of what is made of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, FiniteFloat, ValidationError

from semspec.errors import UserError


def _encoded(text: str) -> str:
    """`ValueError` where a half of a character is in it."""
    text.encode()
    return text


Text = Annotated[str, AfterValidator(_encoded)]
Count = Annotated[int, Field(ge=0, le=10**12)]
Width = Annotated[str, Field(pattern=r"^[1-9][0-9]{0,8}$")]  # of a pass, in tokens; a key of JSON is a text
Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class _Strict(BaseModel):
    """What is read afterwards is the line itself, so nothing that would first have to be converted will do."""

    model_config = ConfigDict(strict=True)


class Counted(_Strict):
    """An answer whose steps and tokens are known."""

    method: str = Field(min_length=1)
    output_tokens: Count
    offered: Count
    accepted: Count
    accepted_tokens: Count
    discarded_tokens: Count
    verifications: Count
    exact_offered: Count
    exact_accepted: Count


class Priced(Counted):
    """An answer whose passes and seconds are known, too."""

    latency_s: Seconds
    phases: dict[str, FiniteFloat]
    passes: dict[Literal["draft", "target"], dict[Width, Count]]


class _Step(_Strict):
    author: str
    text: Text
    n_tokens: Count
    p: FiniteFloat | None
    q: FiniteFloat | None
    a: FiniteFloat | None
    u: FiniteFloat | None
    score: FiniteFloat | None
    accepted: bool | None
    far: bool | None
    truncated: bool
    rejected_text: Text | None
    rejected_tokens: Count
    seconds: FiniteFloat


class Shown(_Strict):
    """An answer that can be shown, step by step."""

    method: str = Field(min_length=1)
    repeat: Count
    question: Text
    output: Text
    answer: Text | None
    gold: Text
    correct: bool
    output_tokens: Count
    latency_s: FiniteFloat
    phases: dict[str, FiniteFloat]
    finish_reason: str
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

"""Forms for Prefect's UI, made from the settings' own models: same names, descriptions, bounds and choices.

A form is an overlay: a field left empty keeps the value of params.yaml. Knows schema.py and how pydantic describes a
model; knows nothing of Prefect.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Annotated, Any

from annotated_types import Ge, Gt, Le, Lt
from pydantic import BaseModel, ConfigDict, Field, create_model, model_serializer
from pydantic.fields import FieldInfo
from pydantic_core import to_jsonable_python

from semspec.schema import Settings

_OVERRIDES: Any = Field(
    default=[],
    title="overrides",
    description="More parameters, each as section.name=value: for what a field can't say, as decide.threshold=null.",
)


def _plain(kind: dict[str, Any]) -> dict[str, Any]:
    """A type as the UI shows it best: a list of choices where there are few."""
    if kind.get("type") == "boolean":  # a switch that is left alone would look like "off"
        return {"enum": [True, False]}
    if "const" in kind:
        return {"enum": [kind["const"]], "type": kind["type"]}
    return kind


def _without_null(schema: dict[str, Any]) -> None:
    """Describe a field that may be left out by its type alone: a choice between it and null confuses a form."""
    for name, prop in schema.get("properties", {}).items():
        kinds = [_plain(kind) for kind in prop.pop("anyOf", [prop]) if kind.get("type") != "null"]
        about = {key: prop[key] for key in ("title", "description", "default") if prop.get(key) is not None}
        schema["properties"][name] = about | (kinds[0] | about if len(kinds) == 1 else {"anyOf": kinds})


class Form(BaseModel):
    """Fields that may all be left out; those left out are left out of its JSON too."""

    model_config = ConfigDict(extra="forbid", json_schema_extra=_without_null)

    @model_serializer(mode="wrap")
    def _filled(self, handler: Any) -> dict[str, Any]:
        return {name: value for name, value in handler(self).items() if value is not None}


def _bounds(field: FieldInfo) -> str:
    """A number's bounds in words, for the UI shows none: " 1 to 16."; empty without bounds."""
    low, high = "", ""
    for bound in field.metadata:
        if isinstance(bound, Ge):
            low = f"{bound.ge:,.10g}"
        elif isinstance(bound, Gt):
            low = f"above {bound.gt:,.10g}"
        elif isinstance(bound, Le):
            high = f"{bound.le:,.10g}"
        elif isinstance(bound, Lt):
            high = f"below {bound.lt:,.10g}"
    if not (low or high):
        return ""
    return f" ({low} to {high})" if low and high else f" ({low or high}{' or more' if low else ' or less'})"


@cache
def _form(model: type[BaseModel]) -> type[Form]:
    """A section of the settings as a form: the same fields, each of which may be left out."""
    fields: dict[str, Any] = {name: _optional(name, field) for name, field in model.model_fields.items()}
    return create_model(f"{model.__name__}Form", __base__=Form, __doc__=model.__doc__, **fields)


def _optional(name: str, field: FieldInfo) -> tuple[Any, Any]:
    """A settings field as a form's: the same type and bounds, or nothing; a section within is a form within."""
    kind: Any = field.annotation
    about = field.description
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        about = about or kind.__doc__
        kind = _form(kind)
    elif field.metadata:
        kind = Annotated[(kind, *field.metadata)]
    return kind | None, Field(default=None, title=name, description=(about or "") + _bounds(field))


def request(sections: Sequence[str], text: str, **first: tuple[Any, Any]) -> Any:
    """The form of a flow, a `Form`: the fields `first`, then those sections of the settings, then `overrides`."""
    chosen = {name: _optional(name, Settings.model_fields[name]) for name in sections}
    fields: dict[str, Any] = {**first, **chosen, "overrides": (list[str], _OVERRIDES)}
    return create_model("Request", __base__=Form, __doc__=text, **fields)


def _filled(form: Form, prefix: str = "") -> Iterator[str]:
    """`section.name=value` of each filled field, those of forms within too."""
    for name, value in form:
        if isinstance(value, Form):
            yield from _filled(value, f"{prefix}{name}.")
        elif value is not None:
            yield f"{prefix}{name}={json.dumps(to_jsonable_python(value), ensure_ascii=False)}"


def changes(form: Any) -> list[str]:
    """What a filled form changes, as `section.name=value`; its `overrides` come last and so win."""
    ours = {name for name in type(form).model_fields if name not in Settings.model_fields or name == "profile"}
    return [*(c for c in _filled(form) if c.partition("=")[0] not in ours), *form.overrides]

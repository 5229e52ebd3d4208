"""Reading and changing params.yaml: profile overlays, `a.b=c` overrides, and what is said about a mistake.

The parameters themselves are in schema.py. A profile is an overlay of params.yaml that ships with the package
(profiles/NAME.yaml). Comments in the file are kept.
"""

from __future__ import annotations

import difflib
import re
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, get_args

from pydantic import ValidationError
from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from semspec.errors import UserError
from semspec.files import atomic
from semspec.schema import Method, Settings

PROFILES = Path(__file__).parent / "profiles"
PARAMS = "params.yaml"
# sections of which a single method may have its own values; the names, where not all of a section
VARIED: dict[str, tuple[str, ...]] = {
    "bench": ("gamma",),
    "decide": (),
    "exact": (),
    "baselines": ("scoring", "mark", "first_steps", "reward", "first_tokens"),
}


def _yaml() -> YAML:
    yaml = YAML()
    yaml.preserve_quotes = True
    yaml.width = 4096
    return yaml


def _read(path: Path) -> Any:
    try:
        return _yaml().load(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UserError(f"{path} does not exist; run semspec in the folder that holds params.yaml") from None
    except (YAMLError, UnicodeDecodeError) as e:
        where = getattr(e, "problem_mark", None)
        at = f" at line {where.line + 1}" if where else ""
        raise UserError(f"{path} is not valid YAML{at}; mend it or restore it with `git checkout {path}`") from None


def profiles() -> list[str]:
    """Names of the profiles that ship with the package."""
    return sorted(p.stem for p in PROFILES.glob("*.yaml"))


def _hint(name: str, known: Sequence[str]) -> str:
    close = difflib.get_close_matches(name, known, n=1)
    return f"did you mean '{close[0]}'?" if close else f"known: {', '.join(known)}"


def _is_name(place: str) -> bool:
    return place.isidentifier() and place not in ("int", "str", "float", "Layers")


def _explain(error: ValidationError, source: str) -> UserError:
    # a mistyped section is both unknown and missing: the first says more
    first = sorted(error.errors(), key=lambda e: e["type"] != "extra_forbidden")[0]
    unknown = first["type"] == "extra_forbidden"
    *above, last = map(str, first["loc"])
    # a union adds the names of its members to the place: "train.layers.list[int]"; an unknown name is what was written
    loc = [x for x in above if _is_name(x)] + [last] * (unknown or _is_name(last))
    dotted = ".".join(loc)
    if unknown:
        model: Any = Settings
        for part in loc[:-1]:
            kind = model.model_fields[part].annotation
            # a section, or a union that has one
            model = next((m for m in get_args(kind) if hasattr(m, "model_fields")), kind)
        return UserError(f"{source}: unknown parameter '{dotted}'; {_hint(loc[-1], list(model.model_fields))}")
    if first["type"] == "missing":
        return UserError(f"{source}: parameter '{dotted}' is missing; add it (see docs/parameters.md)")
    return UserError(f"{source}: parameter '{dotted}' is {first['input']!r}: {first['msg']}")


def validate(data: Any, source: str = PARAMS) -> Settings:
    """Settings from plain data, or a `UserError` that names the first wrong parameter."""
    if not isinstance(data, dict):
        raise UserError(f"{source} is empty or not a mapping; restore it with `git checkout {source}`")
    try:
        settings = Settings.model_validate(data)
    except ValidationError as e:
        raise _explain(e, source) from None
    if settings.profile not in profiles():
        hint = _hint(settings.profile, profiles())
        raise UserError(f"{source}: parameter 'profile' is {settings.profile!r}: no such profile; {hint}")
    for name in settings.bench.variants:
        variant(settings, name)
    return settings


def variant(settings: Settings, name: str) -> tuple[str, Settings]:
    """`METHOD@name=value+name=value` -> (METHOD, the settings that it runs with); a bare METHOD runs with `settings`.

    `UserError` where the method is unknown, or a value is none that a method could have for itself.
    """
    method, at, changes = name.partition("@")
    if method not in get_args(Method):
        raise UserError(f"unknown method '{method}'; {_hint(method, get_args(Method))}")
    if not at:
        return method, settings
    data = settings.model_dump()
    data["bench"]["variants"] = []
    given = [change.partition("=")[0].strip() for change in changes.split("+")]
    if twice := next((short for short in given if given.count(short) > 1), None):
        raise UserError(f"variant '{name}': '{twice}' is given twice")
    for change in changes.split("+"):
        if "=" not in change:
            raise UserError(f"variant '{name}': write it as METHOD@name=value+name=value, such as semantic@gamma=2")
        short, value = parse_override(change)
        sections = [s for s, own in VARIED.items() if short in (own or data[s])]
        if not sections:
            known = sorted(n for s, own in VARIED.items() for n in own or data[s])
            raise UserError(f"variant '{name}': a method has no '{short}' of its own; {_hint(short, known)}")
        put(data, f"{sections[0]}.{short}", value)
    return method, validate(data, f"variant '{name}'")


def load(root: Path | str = ".") -> Settings:
    """The settings in `root`/params.yaml."""
    path = Path(root) / PARAMS
    return validate(_read(path), PARAMS if path.resolve() == Path(PARAMS).resolve() else str(path))


def without_secrets(text: str) -> str:
    """A text as it may be shown: no user and no password in its addresses."""
    return re.sub(r"//[^/@\s]*@", "//", text)


def write(folder: Path | str, settings: Settings) -> None:
    """Record `settings` in `folder`/params.yaml, to be shown to others: without comments, and without a password."""
    data = settings.model_dump(mode="json")
    data["tracking"]["uri"] = without_secrets(settings.tracking.uri)
    with atomic(Path(folder) / PARAMS) as temporary, temporary.open("w", encoding="utf-8") as f:
        _yaml().dump(data, f)


def put(data: Any, dotted: str, value: Any) -> None:
    """Set `section.name` in nested data; `UserError` when a section is none."""
    *parents, last = dotted.split(".")
    for part in parents:
        data = data.setdefault(part, {})
        if not isinstance(data, dict):
            raise UserError(f"--set {dotted}: '{part}' is not a section of {PARAMS}")
    comments = getattr(data, "ca", None)
    if comments is not None and last in comments.items:
        comments.items[last][3:] = [None]  # a place for lines before a block; another value there spoils what follows
    data[last] = value


def parse_override(text: str) -> tuple[str, Any]:
    """`a.b=c` -> ("a.b", value), the value read as YAML."""
    name, eq, raw = text.partition("=")
    if not eq or not name.strip():
        raise UserError(f"--set {text!r}: write it as section.name=value")
    try:
        return name.strip(), YAML(typ="safe").load(raw) if raw.strip() else ""
    except YAMLError:
        raise UserError(f"--set {text!r}: the value is not valid YAML") from None


def overridden(
    root: Path | str = ".",
    overrides: Sequence[str] = (),
    values: Mapping[str, Any] | None = None,
    source: str = "the changed parameters",
) -> Settings:
    """The settings in `root`/params.yaml with `section.name=value`, then `values`, on top, in memory only."""
    data = load(root).model_dump()
    for dotted, value in [*map(parse_override, overrides), *(values or {}).items()]:
        put(data, dotted, value)
    return validate(data, source)


def _merge(into: Any, overlay: Any) -> None:
    for key, value in overlay.items():
        if isinstance(value, dict) and isinstance(into.get(key), dict):
            _merge(into[key], value)
        else:
            put(into, key, value)


def _take_back(data: Any, old: Any, new: Any) -> None:
    """Give what the profile `old` set and `new` does not name its default again, unless the user has changed it."""
    present, named = flatten(data), flatten(new)
    for dotted, value in flatten(old).items():
        if dotted not in named and present.get(dotted) == value:
            section, name = dotted.split(".")
            put(data, dotted, Settings.model_fields[section].annotation.model_fields[name].get_default())  # type: ignore[union-attr]


def _says(path: Path, data: Any) -> bool:
    try:
        return bool(_read(path) == data)
    except UserError:
        return False


def apply(
    root: Path | str = ".",
    profile: str | None = None,
    overrides: Sequence[str] = (),
    check: Callable[[Settings], None] = lambda settings: None,
) -> list[str]:
    """Merge a profile and overrides into params.yaml, comments kept; returns the changed dotted names.

    Nothing is written unless the result validates and `check` lets it pass, so a wrong name never spoils the file.
    """
    path = Path(root) / PARAMS
    data = _read(path)
    settings = validate(data)
    if profile is not None:
        if profile not in profiles():
            raise UserError(f"unknown profile '{profile}'; {_hint(profile, profiles())}")
        overlay = _read(PROFILES / f"{profile}.yaml")
        _take_back(data, _read(PROFILES / f"{settings.profile}.yaml"), overlay)
        _merge(data, overlay)
    for override in overrides:
        put(data, *parse_override(override))
    changed_settings = validate(data, "the changed parameters")
    check(changed_settings)
    before, after = settings.model_dump(), changed_settings.model_dump()
    changed = sorted(n for n, v in flatten(after).items() if flatten(before).get(n) != v)
    if changed:
        with atomic(path.resolve()) as temporary:  # a link stays one
            with temporary.open("w", encoding="utf-8") as f:
                _yaml().dump(data, f)
            shutil.copymode(path, temporary)
            if not _says(temporary, data):
                raise UserError(
                    f"{path} can't be changed without spoiling it; change {', '.join(changed)} there by hand"
                )
    return changed


def flatten(data: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested settings -> {"section.name": value}."""
    out: dict[str, Any] = {}
    for key, value in data.items():
        if isinstance(value, dict):
            out |= flatten(value, f"{prefix}{key}.")
        else:
            out[f"{prefix}{key}"] = value
    return out

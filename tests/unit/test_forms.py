"""Forms made from the settings: what they say, and what a filled one changes."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import ValidationError

from semspec import config, forms, schema

ROOT = Path(__file__).resolve().parents[2]
SECTIONS = [name for name in schema.Settings.model_fields if name != "profile"]


def test_every_field_says_what_it_is_and_none_offers_null():
    """Also those of sections within sections; booleans are a choice, not a switch that looks off."""
    schema = forms.request(SECTIONS, "x").model_json_schema()
    fields = [(name, f) for part in (schema, *schema["$defs"].values()) for name, f in part["properties"].items()]
    assert len(fields) > 60
    for name, field in fields:
        assert field.get("description"), name
        assert not any(kind.get("type") == "null" for kind in field.get("anyOf", [])), name
        assert field.get("type") != "boolean", name
    assert schema["$defs"]["SampleForm"]["properties"]["n"]["maximum"] == 10_000


def test_only_filled_fields_change_the_settings():
    """What is left empty keeps its value; sections within sections, lists and odd text arrive as they were written."""
    form = forms.request(SECTIONS, "x")
    assert forms.changes(form()) == [] and form().model_dump() == {"overrides": []}
    filled = form.model_validate(
        {
            "text": {"system": "a: 'b' \\boxed{} é # x"},
            "engine": {"draft": {"threads": 1}},
            "train": {"layers": {"draft": [1, 2], "target": [3]}, "lr": 1e-5, "hidden_sizes": [3, 4]},
            "cluster": {"gate": False},
            "decide": {"threshold": 0.5},
            "overrides": ["decide.threshold=null"],
        }
    )
    settings = config.overridden(ROOT / "tests/defaults", forms.changes(filled))
    assert settings.text.system == "a: 'b' \\boxed{} é # x"
    assert settings.engine.draft.threads == 1 and settings.engine.draft.kind is None
    assert settings.train.layers == schema.Layers(draft=[1, 2], target=[3]) and settings.train.lr == 1e-5
    assert settings.cluster.gate is False and settings.decide.threshold is None
    assert settings.sample == config.load(ROOT / "tests/defaults").sample


def test_bounds_hold_in_the_form():
    """A value out of bounds, or a name that is none, is refused by the form itself."""
    form = forms.request(["sample"], "x")
    for wrong in ({"sample": {"n": 1}}, {"sample": {"m": 3}}):
        with pytest.raises(ValidationError):
            form.model_validate(wrong)

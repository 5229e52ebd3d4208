"""The model card: what a bundle is, what it was made of, how good it was, and what it must not be used for; Markdown.

Lays out what the bundle and its evaluation hold (card.md.j2); measures nothing. Names no path and no time, so that
equal bundles have equal cards.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from semspec.schema import Settings
    from semspec.tracking.evaluation import Evaluation

FILE = "model_card.md"
METRICS = ("pass_at_1", "pass_at_1_diff", "speedup", "speedup_total", "target_ratio", "acceptance_rate", "n")


def _layers(layers: list[int]) -> str:
    if len(layers) > 2 and layers == list(range(layers[0], layers[-1] + 1)):
        return f"{layers[0]} to {layers[-1]}"
    return ", ".join(map(str, layers)) or "none"


def _model(role: str, described: dict[str, Any], layers: list[int]) -> dict[str, Any]:
    from semspec.models import CATALOGUE, TRAINED

    name, weights = described["name"], described.get("files", {})
    licence = "of this project (trained by it)" if name in TRAINED else "see the model's own page"
    if name in CATALOGUE:
        licence = CATALOGUE[name].license
    sha256 = described.get("sha256") or ", ".join(v for f, v in weights.items() if f.endswith(".safetensors"))
    return {"role": role, "name": name, "licence": licence, "sha256": sha256 or "unknown", "layers": _layers(layers)}


def write(bundle: dict[str, Any], evaluation: Evaluation | None, settings: Settings, weights: str) -> str:
    """The card of what bundle.json and evaluation.json hold; `weights` is the number format of the training states."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    from semspec.bench.metrics import BY_KEY, order
    from semspec.report.tables import Probes

    methods = bundle["metrics"].get("bench", {})
    models = [_model(role, bundle["models"][role], layers) for role, layers in bundle["layers"].items()]
    environment = Environment(
        loader=PackageLoader("semspec.tracking", "."),
        undefined=StrictUndefined,
        trim_blocks=True,
        keep_trailing_newline=True,
    )
    return environment.get_template("card.md.j2").render(
        title=" -> ".join(m["name"] for m in models),
        models=models,
        d=bundle["decoding"],
        rule=bundle["decoding"]["rule_in_words"],
        weights=weights,
        settings=settings,
        data=bundle["data"],
        evaluation=evaluation,
        c=(evaluation or {}).get("conditions"),
        methods={name: methods[name] for name in order(list(methods))},
        metrics=[BY_KEY[key] for key in METRICS],
        probes=Probes.of(bundle["metrics"].get("probes"), settings.decide.rule),
        version=bundle["semspec"],
        params=bundle["params_sha256"],
    )

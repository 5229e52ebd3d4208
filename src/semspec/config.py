"""Settings: params.yaml as strict pydantic models, profile overlays, `a.b=c` overrides, and their error messages.

This is the only place that knows parameter names, defaults and bounds. It knows nothing of what a stage does with
them. A profile is an overlay of params.yaml that ships with the package (profiles/NAME.yaml).
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, NonNegativeInt, PositiveInt, ValidationError, field_validator
from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from semspec.errors import UserError
from semspec.files import atomic

PROFILES = Path(__file__).parent / "profiles"
PARAMS = "params.yaml"
Method = Literal[
    "target",
    "draft",
    "speculative_sampling",
    "prompt_lookup",
    "specreason",
    "speculative_thinking",
    "reward_guided",
    "semantic",
    "semantic_hybrid",
    "semantic_random",
    "semantic_last_hidden",
    "semantic_cross_domain",
]


class Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Models(Strict):
    """Which language models; each a catalogue name, a hub id, or a local folder."""

    draft: str = Field(description="The small model that writes the steps.")
    target: str = Field(description="The large model that verifies them.")
    encoder: str = Field(description="Sentence encoder of the label cascade.")
    trust_remote_code: bool = Field(False, description="Run code shipped with a hub model. Off unless you trust it.")


class Engine(Strict):
    """How the models are run."""

    weights: Literal["auto", "fp32", "bf16", "int8"] = Field("auto", description="auto = int8 on a CPU, bf16 on a GPU.")
    device: str = Field("auto", description="auto, cpu, cuda, cuda:0 ...")
    threads: int = Field(0, ge=0, le=512, description="CPU threads; 0 = every core.")
    batch_rows: int = Field(48, ge=1, le=4096, description="Rows of one packed sampling batch.")


class Text(Strict):
    """Cutting text into steps, and the prompt. Both models use the same."""

    split: Literal["blank_line", "sentence"] = "blank_line"
    max_step_tokens: int = Field(128, ge=4, le=4096, description="A longer step is cut there and marked truncated.")
    system: str = Field(description="System prompt of both models.")


class Contexts(Strict):
    """Which contexts the labels are made in (training questions only)."""

    dataset: str = Field("gsm_symbolic", description="gsm_symbolic, gsm8k, s1k, s1k:math, s1k:science, FILE.jsonl.")
    questions: int = Field(16, ge=2, le=1_000_000)
    per_question: int = Field(1, ge=1, le=64, description="Contexts drawn from each question's chain.")
    max_steps: int = Field(6, ge=0, le=1000, description="At most this many steps in front of a sample.")
    max_tokens: int = Field(256, ge=8, le=65536, description="Token limit of the target's own chain.")


class Sample(Strict):
    """Continuations of each context, by both models."""

    n: int = Field(10, ge=2, le=10_000, description="Samples per context and model.")
    temperature: float = Field(0.7, gt=0, le=5)
    top_p: float = Field(0.95, gt=0, le=1)
    contexts_per_shard: int = Field(4, ge=1, le=4096, description="Saved together; a kill loses at most one shard.")


class Cluster(Strict):
    """Which samples mean the same."""

    labels: Literal["cross", "own"] = Field("cross", description="own = the paper's: each model's samples alone.")
    entailment: Literal["cosine", "nli"] = Field("cosine", description="The model behind the mathematics gate.")
    nli_model: str = Field("microsoft/deberta-xlarge-mnli", description="Hub id or folder, for `entailment: nli`.")
    threshold: float = Field(0.6, ge=0, le=1, description="Cosine, or entailment probability, that counts as same.")
    calculated: float = Field(
        0.4, ge=0, le=1, description="The same, where the gate found the same mathematics and a step has an equation."
    )
    gate: bool = Field(True, description="The mathematics gate in front of the model.")
    context: bool = Field(False, description="Put the context in front of both steps (the paper does).")


class Train(Strict):
    """The probes."""

    features: Literal["hidden", "logprob", "both"] = "both"
    layers: Literal["all", "last"] | list[int] = "all"
    predictor: Literal["auto", "linear", "mlp"] = Field("auto", description="auto = the better in cross-validation.")
    pca: Literal["auto"] | NonNegativeInt = Field(
        "auto", description="Principal components; 0 = none; auto = when rows are few."
    )
    folds: int = Field(5, ge=2, le=50, description="Cross-validation folds, grouped by question.")
    loss: Literal["squared", "binomial", "ordinal"] = Field(
        "ordinal", description="Of `linear` and of the joint predictor; ordinal = above 0, .2, .5, .8?"
    )
    ridge: float = Field(30.0, gt=0, lt=1e9, description="Ridge strength of `linear`.")
    hidden_sizes: tuple[PositiveInt, PositiveInt] = Field((512, 128), description="The two inner layers of `mlp`.")
    dropout: float = Field(0.1, ge=0, lt=1)
    lr: float = Field(1e-3, gt=0, lt=1)
    weight_decay: float = Field(0.01, ge=0)
    epochs: int = Field(200, ge=1, le=100_000)
    patience: int = Field(20, ge=1)
    batch_size: int = Field(128, ge=1)
    calibration: Literal["none", "isotonic", "sigmoid"] = "sigmoid"


# The dial between speed and quality: parameters here, and fields of a request to the server.
Gamma = Annotated[int, Field(ge=1, le=16, description="Steps drafted per verification.")]
Bias = Annotated[float, Field(ge=-20, le=20, description="Above 0 keeps more steps, below 0 fewer.")]
Threshold = Annotated[
    float | None,
    Field(ge=0, le=1, description="null: the verdict is drawn (the paper's); else kept where the score reaches it."),
]


class Decide(Strict):
    """When `semantic` keeps a drafted step: with probability min(1, exp(bias) * score)."""

    rule: Literal["ratio", "joint", "p"] = Field(
        "ratio", description="The score: p / q (the paper's) | learned from both models' views | p alone."
    )
    bias: Bias = 0.0
    far: Literal["flag", "reject"] = Field(
        "flag", description="A state far from the training states: marked in the trace | the step is the target's."
    )
    threshold: Threshold = None


class Exact(Strict):
    """Exact speculation: `speculative_sampling`, `prompt_lookup`, and what `semantic_hybrid` salvages."""

    draft_tokens: int = Field(5, ge=1, le=64, description="Tokens drafted per pass (speculative_sampling).")
    ngram: int = Field(3, ge=1, le=16, description="Longest n-gram that is looked up.")
    lookup_tokens: int = Field(10, ge=1, le=256, description="Tokens proposed after a match.")


class Baselines(Strict):
    """The published methods, and the other probes of the paper's comparisons."""

    scoring: Literal["greedy", "average"] = Field("greedy", description="specreason's mark: likeliest digit | mean.")
    mark: float = Field(7, ge=0, le=9, description="specreason keeps a step from this mark on (0 to 9).")
    first_steps: int = Field(0, ge=0, description="specreason: so many first steps are the target's.")
    reward: float = Field(0.7, ge=0, le=1, description="reward_guided keeps a step from this reward on.")
    first_tokens: int = Field(0, ge=0, description="speculative_thinking: so many first tokens are the target's.")
    cross_probes: str = Field("", description="semantic_cross_domain: another project's data/probes.")


class Bench(Strict):
    """The comparison."""

    dataset: str = Field("gsm_symbolic", description="A set's name (docs/bench.md), or a FILE.jsonl.")
    limit: int = Field(6, ge=1, le=1_000_000, description="Test problems.")
    repeats: int = Field(1, ge=1, le=1000, description="Answers to each problem, each with a seed of its own.")
    methods: list[Method] = Field(default=["target", "draft", "semantic"], min_length=1)
    gamma: Gamma = 1
    temperature: float = Field(0.0, ge=0, le=5, description="0 = greedy.")
    top_p: float = Field(0.95, gt=0, le=1)
    max_tokens: int = Field(320, ge=8, le=131072, description="Token budget of an answer, the same for all methods.")
    bootstrap: int = Field(2000, ge=100, le=1_000_000)


class Report(Strict):
    """The HTML report."""

    max_points: int = Field(4000, ge=10, description="Points on the map of hidden states.")


class Serve(Strict):
    """The server; no stage reads this."""

    host: str = Field("127.0.0.1", description="Any other than this machine's own needs an API key.")
    port: int = Field(8000, ge=0, le=65535, description="0 = a free one.")
    queue: int = Field(16, ge=0, le=10_000, description="Requests that may wait; one more is turned away (429).")
    timeout: float = Field(600, gt=0, le=86_400, description="Seconds for a request, its time in the queue included.")
    grace: float = Field(30, ge=0, le=3600, description="Seconds that a running answer has left at shutdown.")
    max_tokens: int = Field(
        1024, ge=1, le=131072, description="Longest answer; also that of a request without a limit."
    )
    max_prompt_tokens: int = Field(8192, ge=1, le=1_000_000, description="Longest prompt.")


class Tracking(Strict):
    """MLflow."""

    experiment: str = "semspec"
    uri: str = Field("", description="Empty = sqlite mlflow.db here, artifacts under ./mlruns.")


class Settings(Strict):
    """Everything in params.yaml."""

    profile: str = "quick"
    seed: int = Field(0, ge=0, le=2**31 - 1)
    models: Models
    engine: Engine = Engine()
    text: Text
    contexts: Contexts = Contexts()
    sample: Sample = Sample()
    cluster: Cluster = Cluster()
    train: Train = Train()
    decide: Decide = Decide()
    exact: Exact = Exact()
    baselines: Baselines = Baselines()
    bench: Bench = Bench()
    report: Report = Report()
    serve: Serve = Serve()
    tracking: Tracking = Tracking()

    @field_validator("profile")
    @classmethod
    def _known(cls, name: str) -> str:
        if name not in profiles():
            raise ValueError(f"no such profile; {_hint(name, profiles())}")
        return name


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
        raise UserError(
            f"{path} is not valid YAML{at}; mend it or restore it with `git checkout {path.name}`"
        ) from None


def profiles() -> list[str]:
    """Names of the profiles that ship with the package."""
    return sorted(p.stem for p in PROFILES.glob("*.yaml"))


def _hint(name: str, known: Sequence[str]) -> str:
    close = difflib.get_close_matches(name, known, n=1)
    return f"did you mean '{close[0]}'?" if close else f"known: {', '.join(known)}"


def _explain(error: ValidationError, source: str) -> UserError:
    # a mistyped section is both unknown and missing: the first says more
    first = sorted(error.errors(), key=lambda e: e["type"] != "extra_forbidden")[0]
    # a union adds the names of its members to the place: "train.layers.list[int]"
    loc = [str(x) for x in first["loc"] if str(x).isidentifier() and x not in ("int", "str")]
    dotted = ".".join(loc)
    if first["type"] == "extra_forbidden":
        model: Any = Settings
        for part in loc[:-1]:
            model = model.model_fields[part].annotation
        return UserError(f"{source}: unknown parameter '{dotted}'; {_hint(loc[-1], list(model.model_fields))}")
    if first["type"] == "missing":
        return UserError(f"{source}: parameter '{dotted}' is missing; add it (see docs/parameters.md)")
    return UserError(
        f"{source}: parameter '{dotted}' is {first['input']!r}: {first['msg'].removeprefix('Value error, ')}"
    )


def validate(data: Any, source: str = PARAMS) -> Settings:
    """Settings from plain data, or a `UserError` that names the first wrong parameter."""
    if not isinstance(data, dict):
        raise UserError(f"{source} is empty or not a mapping; restore it with `git checkout {PARAMS}`")
    try:
        return Settings.model_validate(data)
    except ValidationError as e:
        raise _explain(e, source) from None


def load(root: Path | str = ".") -> Settings:
    """The settings in `root`/params.yaml."""
    return validate(_read(Path(root) / PARAMS))


def put(data: Any, dotted: str, value: Any) -> None:
    """Set `section.name` in nested data; `UserError` when a section is none."""
    *parents, last = dotted.split(".")
    for part in parents:
        data = data.setdefault(part, {})
        if not isinstance(data, dict):
            raise UserError(f"--set {dotted}: '{part}' is not a section of {PARAMS}")
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


def _merge(into: Any, overlay: Any) -> None:
    for key, value in overlay.items():
        if isinstance(value, dict) and isinstance(into.get(key), dict):
            _merge(into[key], value)
        else:
            into[key] = value


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
    before = validate(data).model_dump()
    if profile is not None:
        if profile not in profiles():
            raise UserError(f"unknown profile '{profile}'; {_hint(profile, profiles())}")
        _merge(data, _read(PROFILES / f"{profile}.yaml"))
    for override in overrides:
        put(data, *parse_override(override))
    changed_settings = validate(data, "the changed parameters")
    check(changed_settings)
    after = changed_settings.model_dump()
    changed = sorted(n for n, v in flatten(after).items() if flatten(before).get(n) != v)
    if changed:
        with atomic(path) as temporary, temporary.open("w", encoding="utf-8") as f:
            _yaml().dump(data, f)
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

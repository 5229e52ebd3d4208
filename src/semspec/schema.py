"""Every parameter of params.yaml: names, types, defaults, bounds and what they mean, as strict pydantic models.

The only place that knows them. It knows nothing of files, profiles or the command line (config.py), nor of what a stage
does with a value.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, get_args

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    NonNegativeInt,
    PositiveInt,
    ValidationInfo,
    field_validator,
)

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


def _once(names: list[str]) -> list[str]:
    if len(set(names)) < len(names):
        raise ValueError("a name is given twice")
    return names


Once = AfterValidator(_once)  # of a list: no member twice
Backend = Literal["cosine", "nli", "crossencoder"]
Share = Annotated[float, Field(ge=0, le=1)]
ASIDE = {"profile", "registry", "scale", "serve", "tracking", "tune"}  # no stage reads these


class Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    @field_validator("*", mode="before")
    @classmethod
    def _no_number(cls, value: Any, info: ValidationInfo) -> Any:
        """Pydantic would take true for 1 and false for 0: a threshold that is meant to be off would keep every step."""
        kind = cls.model_fields[str(info.field_name)].annotation
        if kind is not bool and any(isinstance(v, bool) for v in (value if isinstance(value, list) else [value])):
            none = f"; null means no {info.field_name}" if type(None) in get_args(kind) else ""
            raise ValueError(f"neither true nor false can stand here{none}")
        return value


class Models(Strict):
    """Which language models; each a catalogue name, a hub id, or a local folder."""

    draft: str = Field(description="The small model that writes the steps.")
    target: str = Field(description="The large model that verifies them.")
    encoder: str = Field(description="Sentence encoder of the label cascade.")
    trust_remote_code: bool = Field(False, description="Run code shipped with a hub model. Off unless you trust it.")


EngineKind = Literal["transformers", "llamacpp", "sglang"]
Weights = Literal["auto", "fp32", "bf16", "int8"]
Url = Annotated[str, Field(pattern=r"^https?://[^/@\s]+$")]  # and no password: it would be published
SGLANG = {"target": "http://127.0.0.1:30000", "draft": "http://127.0.0.1:30001"}  # as docker/compose.yaml has them


class RoleEngine(Strict):
    """What differs for one of the two models; null = as in `engine`."""

    kind: EngineKind | None = Field(None, description="What runs this model.")
    weights: Weights | None = Field(None, description="Number format of this model.")
    device: str | None = Field(None, description="Device of this model.")
    threads: int | None = Field(None, ge=0, le=512, description="CPU threads of this model.")
    url: Url | None = Field(None, description="Address of this model's SGLang server.")


class Engine(Strict):
    """How the models are run."""

    kind: EngineKind = Field(
        "transformers",
        description="llamacpp = the GGUF file as it is, on the CPU; sglang = a server that runs the model.",
    )
    weights: Weights = Field(
        "auto", description="auto = int8 on an x86 CPU, fp32 on others, bf16 on a GPU. Of `transformers` only."
    )
    device: str = Field("auto", description="auto, cpu, cuda, cuda:0 ... Of `transformers` only.")
    threads: int = Field(0, ge=0, le=512, description="CPU threads; 0 = every core.")
    batch_rows: int = Field(48, ge=1, le=4096, description="Rows of one packed sampling batch.")
    url: Url | None = Field(
        None, description="Address of the SGLang server; null = port 30000 here for the target, 30001 for the draft."
    )
    draft: RoleEngine = Field(RoleEngine(), description="What differs for the draft.")
    target: RoleEngine = Field(RoleEngine(), description="What differs for the target.")

    def of(self, role: str) -> Engine:
        """The settings of the `draft` or the `target`, nothing of them left to a role."""
        shared = {"url": SGLANG[role]} | self.model_dump(exclude={"draft", "target"}, exclude_none=True)
        return Engine(**shared | getattr(self, role).model_dump(exclude_none=True))


class Text(Strict):
    """Cutting text into steps, and the prompt. Both models use the same."""

    split: Literal["blank_line", "sentence"] = Field("blank_line", description="Where a reasoning step ends.")
    max_step_tokens: int = Field(128, ge=4, le=4096, description="A longer step is cut there and marked truncated.")
    system: str = Field(
        "Solve the problem in short steps, one calculation in each step. Write no code. Put a blank line between "
        "steps. End with the final answer in \\boxed{}.",
        description="System prompt of both models.",
    )


class Contexts(Strict):
    """Which contexts the labels are made in (training questions only)."""

    dataset: str = Field("gsm_symbolic", description="gsm_symbolic, gsm8k, s1k, s1k:math, s1k:science, FILE.jsonl.")
    data_dir: str = Field("", description="Folder that has the published set (docs/bench.md); empty = the hub.")
    questions: int = Field(16, ge=2, le=1_000_000, description="Training questions.")
    per_question: int = Field(1, ge=1, le=64, description="Contexts drawn from each question's chain.")
    max_steps: int = Field(6, ge=0, le=1000, description="At most this many steps in front of a sample.")
    max_tokens: int = Field(256, ge=8, le=65536, description="Token limit of the target's own chain.")


class Sample(Strict):
    """Continuations of each context, by both models."""

    n: int = Field(10, ge=2, le=10_000, description="Samples per context and model.")
    temperature: float = Field(0.7, gt=0, le=5, description="Of the sampling; lower is less varied.")
    top_p: float = Field(0.95, gt=0, le=1, description="Drawn from the likeliest tokens of this probability.")
    contexts_per_shard: int = Field(4, ge=1, le=4096, description="Saved together; a kill loses at most one shard.")


class CrossEncoder(Strict):
    """Fine-tuning the encoder to tell entailment, for `cluster.entailment: crossencoder`."""

    steps: int = Field(300, ge=1, le=100_000, description="Batches of 24 generated pairs.")
    lr: float = Field(2e-4, gt=0, lt=1, description="Learning rate, falling to 0; larger encoders need a lower one.")


class Cluster(Strict):
    """Which samples mean the same."""

    labels: Literal["cross", "own"] = Field("cross", description="own = the paper's: each model's samples alone.")
    entailment: Backend = Field(
        "cosine", description="The model behind the mathematics gate; crossencoder = made by the stage entailment."
    )
    nli_model: str = Field("microsoft/deberta-xlarge-mnli", description="Hub id or folder, for `entailment: nli`.")
    threshold: Literal["auto"] | Share = Field(
        "auto", description="Cosine, or entailment probability, that counts as same; auto = what suits the model."
    )
    calculated: Literal["auto"] | Share = Field(
        "auto", description="The same, where the gate found the same mathematics and a step has an equation."
    )
    gate: bool = Field(True, description="The mathematics gate in front of the model.")
    context: bool = Field(False, description="Put the context in front of both steps (the paper does).")


class Layers(Strict):
    """Layer numbers of each model."""

    draft: list[int] = Field(description="Of the draft; negative numbers count from the last.")
    target: list[int] = Field(description="Of the target; negative numbers count from the last.")


class Train(Strict):
    """The probes."""

    features: Literal["hidden", "logprob", "both"] = Field(
        "both", description="What the probes see: hidden states (the paper's), statistics of log-probabilities, both."
    )
    layers: Literal["all", "last"] | list[int] | Layers = Field(
        "all", description="all, last, layer numbers, or a choice for each model."
    )
    predictor: Literal["auto", "linear", "mlp"] = Field("auto", description="auto = the better in cross-validation.")
    pca: Literal["auto"] | NonNegativeInt = Field(
        "auto", description="Principal components; 0 = none; auto = when rows are few."
    )
    folds: int = Field(5, ge=2, le=50, description="Cross-validation folds, grouped by question.")
    loss: Literal["squared", "binomial", "ordinal"] = Field(
        "ordinal", description="Of `linear` and of the joint predictor; ordinal = above 0, .2, .5, .8?"
    )
    ridge: float = Field(30.0, gt=0, lt=1e9, description="Ridge strength of `linear`.")
    hidden_sizes: list[PositiveInt] = Field([512, 128], min_length=1, max_length=6, description="`mlp`: inner layers.")
    dropout: float = Field(0.1, ge=0, lt=1, description="Dropout of `mlp`.")
    lr: float = Field(1e-3, gt=0, lt=1, description="Learning rate of `mlp`.")
    weight_decay: float = Field(0.01, ge=0, description="Weight decay of `mlp`.")
    epochs: int = Field(200, ge=1, le=100_000, description="Epochs of `mlp` at most.")
    patience: int = Field(20, ge=1, description="Epochs without a gain after which `mlp` stops.")
    batch_size: int = Field(128, ge=1, description="Rows of one update of `mlp`.")
    calibration: Literal["none", "isotonic", "sigmoid"] = Field("sigmoid", description="Of the predictions, per fold.")

    def layers_of(self, role: str) -> Literal["all", "last"] | list[int]:
        """The choice for one model."""
        return getattr(self.layers, role) if isinstance(self.layers, Layers) else self.layers


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

    draft_tokens: int = Field(5, ge=1, le=64, description="Tokens that the draft proposes per pass.")
    ngram: int = Field(3, ge=1, le=16, description="Longest n-gram that is looked up.")
    lookup_tokens: int = Field(4, ge=1, le=256, description="Tokens proposed after a match.")
    drafting: Literal["plain", "lookup"] = Field(
        "plain", description="semantic's draft writes token by token | verifies n-grams of its text as it writes."
    )
    proposals: Literal["lookup", "draft"] = Field(
        "lookup",
        description="semantic_hybrid: behind n-grams of the rejected step those of the text | the draft's own tokens.",
    )


class Baselines(Strict):
    """The published methods, and the other probes of the paper's comparisons."""

    scoring: Literal["greedy", "average"] = Field("greedy", description="specreason's mark: likeliest digit | mean.")
    mark: float = Field(7, ge=0, le=9, description="specreason keeps a step from this mark on (0 to 9).")
    first_steps: int = Field(0, ge=0, description="specreason: so many first steps are the target's.")
    reward: float = Field(0.7, ge=0, le=1, description="reward_guided keeps a step from this reward on.")
    scorer: str = Field(
        "",
        pattern=r"^(\w+(\.\w+)*:\w+(\.\w+)*)?$",
        description="reward_guided: module:callable that gives the reward (docs/bench.md); empty = the target's mark.",
    )
    first_tokens: int = Field(0, ge=0, description="speculative_thinking: so many first tokens are the target's.")
    cross_probes: str = Field("", description="semantic_cross_domain: another project's data/probes.")


class Bench(Strict):
    """The comparison."""

    dataset: str = Field("gsm_symbolic", description="A set's name (docs/bench.md), or a FILE.jsonl.")
    limit: int = Field(6, ge=1, le=1_000_000, description="Test problems.")
    repeats: int = Field(1, ge=1, le=1000, description="Answers to each problem, each with a seed of its own.")
    methods: Annotated[list[Method], Once] = Field(
        default=["target", "draft", "semantic"], min_length=1, description="The decoding methods that are compared."
    )
    variants: Annotated[list[str], Once] = Field(
        default=[], description="Methods with parameters of their own: METHOD@name=value+name=value (docs/bench.md)."
    )
    gamma: Gamma = 1
    temperature: float = Field(0.0, ge=0, le=5, description="0 = greedy.")
    top_p: float = Field(0.95, gt=0, le=1, description="Drawn from the likeliest tokens of this probability.")
    max_tokens: int = Field(320, ge=8, le=131072, description="Token budget of an answer, the same for all methods.")
    bootstrap: int = Field(2000, ge=100, le=1_000_000, description="Resamples of the confidence intervals.")


class Report(Strict):
    """The HTML report."""

    max_points: int = Field(4000, ge=10, description="Points on the map of hidden states.")
    projection: Literal["umap", "pca"] = Field(
        "umap", description="How the map is made: umap as in the paper; pca takes no time (umap: half a minute)."
    )


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


class Tune(Strict):
    """The search for better settings, on validation questions."""

    dataset: str = Field("", description="Validation questions: empty = of contexts.dataset; or a FILE.jsonl.")
    questions: int = Field(60, ge=2, le=100_000, description="Validation questions that each trial answers.")
    search: Annotated[list[Literal["decide", "gamma", "probe", "layers", "labels", "split"]], Once] = Field(
        default=["decide", "gamma", "probe", "layers", "labels"], min_length=1, description="What is searched."
    )
    objective: Literal["pareto", "combined"] = Field(
        "pareto", description="Pass@1 and latency apart | pass_at_1 - price * latency / latency(target)."
    )
    price: float = Field(0.2, ge=0, le=100, description="Pass@1 that one whole latency of the target is worth.")
    latency_limit: float | None = Field(None, gt=0, description="At most this latency / latency(target); null = none.")
    trials: int = Field(100, ge=1, le=1_000_000, description="Trials of the whole search.")
    workers: int = Field(1, ge=1, le=256, description="Processes that share the trials.")
    extend: bool = Field(True, description="Ask the models where a trial leaves what is recorded; else it is missing.")
    live: int = Field(0, ge=0, le=1000, description="So many of the best are run for real afterwards.")
    live_seeds: int = Field(3, ge=1, le=100, description="Runs of each of them, each with a seed of its own.")


class Tracking(Strict):
    """MLflow."""

    experiment: str = Field("semspec", description="Name of the MLflow experiment.")
    uri: str = Field("", description="Empty = sqlite mlflow.db here, artifacts under ./mlruns.")


class Scale(Strict):
    """Who does the long stages (sample, bench, truth). The results don't depend on it."""

    runner: Literal["threads", "ray", "dask"] = Field("threads", description="threads = processes on this machine.")
    workers: int = Field(1, ge=1, le=4096, description="Parts that are worked on at once; 1 = undivided.")
    gpus: int = Field(0, ge=0, le=64, description="GPUs of each worker; 0 = whatever is there.")
    address: str = Field("", description="Of a Ray or Dask cluster; empty = one of `workers` processes, for the run.")


class Registry(Strict):
    """The registered probes, and when a new version becomes champion."""

    name: str = Field("", pattern=r"^[^/:]*$", description="Of the registered model; empty = semspec-DRAFT-TARGET.")
    margin: float = Field(2.0, ge=0, le=100, description="Points of Pass@1 that a champion may be worse than the last.")
    slowdown: float | None = Field(
        None, gt=0, description="null: latency is recorded only; else at most so many times the champion's."
    )


class Settings(Strict):
    """Everything in params.yaml."""

    profile: str = Field("quick", description="The profile that was merged last.")
    seed: int = Field(0, ge=0, le=2**31 - 1, description="Of everything that is drawn.")
    models: Models
    engine: Engine = Engine()
    text: Text
    contexts: Contexts = Contexts()
    sample: Sample = Sample()
    crossencoder: CrossEncoder = CrossEncoder()
    cluster: Cluster = Cluster()
    train: Train = Train()
    decide: Decide = Decide()
    exact: Exact = Exact()
    baselines: Baselines = Baselines()
    bench: Bench = Bench()
    tune: Tune = Tune()
    report: Report = Report()
    serve: Serve = Serve()
    tracking: Tracking = Tracking()
    scale: Scale = Scale()
    registry: Registry = Registry()

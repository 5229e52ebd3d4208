"""The shapes of the API: OpenAI's chat completions and completions, with our fields beside theirs.

Requests are strict: a field that is not understood, or a value that would not be honoured, is an error and never
silently dropped. What is ours: `method`, `gamma`, `bias`, `threshold` in a request, `semspec` in a reply. Knows nothing
of how an answer is made.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints

from semspec import schema
from semspec.decoding import TraceStep
from semspec.errors import UserError
from semspec.serving.decoder import Ask, Done


def _whole(text: str) -> str:
    if not text.isascii() and any("\ud800" <= c <= "\udfff" for c in text):
        raise ValueError("half of a surrogate pair is no text")
    return text


Text = Annotated[str, AfterValidator(_whole)]
Stop = Annotated[Text, StringConstraints(min_length=1, max_length=100)]


def _off(value: bool) -> bool:
    if value:
        raise ValueError("this is not supported")
    return value


Off = Annotated[bool, AfterValidator(_off), Field(json_schema_extra={"const": False})]  # Literal[False] admits 0
One = Annotated[int, Field(ge=1, le=1)]
Zero = Annotated[float, Field(ge=0, le=0)]
Int64 = Annotated[int, Field(ge=-(2**63), lt=2**63)]


class Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


# --- requests


class Part(Strict):
    """A piece of a message's content."""

    type: Literal["text"]
    text: Text


class Message(Strict):
    role: Literal["system", "developer", "user", "assistant"]
    content: Text | list[Part]
    name: str | None = Field(None, description="Ignored.")

    @property
    def text(self) -> str:
        return self.content if isinstance(self.content, str) else "".join(part.text for part in self.content)


class StreamOptions(Strict):
    include_usage: bool = False
    include_obfuscation: bool = Field(False, description="Ignored.")


class Request(Strict):
    """What both endpoints have in common. Null, and a field left out, mean what the served settings say."""

    model: str
    stream: bool | None = False
    stream_options: StreamOptions | None = None
    max_tokens: Annotated[int, Field(ge=1)] | None = None
    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    top_p: Annotated[float, Field(gt=0, le=1)] | None = None
    seed: Int64 | None = Field(None, description="Null = a random one, told in `semspec.seed`.")
    stop: Stop | Annotated[list[Stop], Field(max_length=4)] | None = None
    n: One | None = 1
    presence_penalty: Zero | None = 0
    frequency_penalty: Zero | None = 0
    logit_bias: dict[str, float] | None = Field(None, max_length=0, description="Must be empty.")
    user: str | None = Field(None, description="Ignored.")
    metadata: dict[str, Any] | None = Field(None, description="Ignored.")
    method: schema.Method | None = Field(None, description="Decoding method.")
    gamma: schema.Gamma | None = None
    bias: schema.Bias | None = None
    threshold: schema.Threshold = None

    def _ask(self, question: str, seed: int, **more: Any) -> Ask:
        stop = [self.stop] if isinstance(self.stop, str) else self.stop or []
        decide: dict[str, Any] = {} if self.bias is None else {"bias": self.bias}
        if "threshold" in self.model_fields_set:  # null is a value here: the verdict is drawn
            decide["threshold"] = self.threshold
        return Ask(
            question,
            method=self.method,
            gamma=self.gamma,
            decide=decide,
            temperature=self.temperature,
            top_p=self.top_p,
            seed=seed % 2**63,
            stop=tuple(stop),
            **more,
        )


class ChatRequest(Request):
    """POST /v1/chat/completions."""

    messages: Annotated[list[Message], Field(min_length=1)]
    max_completion_tokens: Annotated[int, Field(ge=1)] | None = None
    logprobs: Off | None = False
    store: Off | None = False
    response_format: dict[Literal["type"], Literal["text"]] | None = None

    def ask(self, seed: int) -> Ask:
        """`UserError` when the messages are no conversation that waits for an answer."""
        system, history, question = conversation(self.messages)
        most = self.max_tokens if self.max_completion_tokens is None else self.max_completion_tokens
        return self._ask(question, seed, history=history, system=system, max_tokens=most)


class CompletionRequest(Request):
    """POST /v1/completions: the prompt goes to both models as it is, without a chat template."""

    prompt: Annotated[Text, Field(min_length=1)] | Annotated[list[Text], Field(min_length=1, max_length=1)]
    best_of: One | None = 1
    echo: Off | None = False
    logprobs: None = None
    suffix: None = None

    def ask(self, seed: int) -> Ask:
        prompt = self.prompt if isinstance(self.prompt, str) else self.prompt[0]
        return self._ask(prompt, seed, raw=True, max_tokens=self.max_tokens)


def conversation(messages: list[Message]) -> tuple[str | None, tuple[tuple[str, str], ...], str]:
    """(system prompt or None, earlier (question, answer) pairs, the question).

    Messages of one role that follow each other are one. `UserError` unless user and assistant take turns and the
    user has the last word.
    """
    system = [m.text for m in messages if m.role in ("system", "developer")]
    turns: list[tuple[str, str]] = []
    for m in messages:
        if m.role in ("system", "developer"):
            continue
        if turns and turns[-1][0] == m.role:
            turns[-1] = (m.role, f"{turns[-1][1]}\n\n{m.text}")
        else:
            turns.append((m.role, m.text))
    if not turns or turns[0][0] != "user" or turns[-1][0] != "user":
        raise UserError("messages: the first and the last turn must be the user's")
    if not turns[-1][1].strip():
        raise UserError("messages: the last message is empty")
    texts = [text for _, text in turns]
    history = tuple(zip(texts[0:-1:2], texts[1::2], strict=True))
    return "\n\n".join(system) if system else None, history, texts[-1]


# --- replies


class StepReply(BaseModel):
    """A step of an answer, as `decoding.TraceStep` has it; after a rejection p, q, score belong to `rejected_text`."""

    index: int
    author: Literal["draft", "target"]
    text: str
    tokens: int
    p: float | None
    q: float | None
    score: float | None
    acceptance: float | None
    accepted: bool | None
    unfamiliar: bool | None
    rejected_text: str | None
    rejected_tokens: int
    truncated: bool
    seconds: float

    @classmethod
    def of(cls, index: int, step: TraceStep) -> StepReply:
        return cls(
            index=index,
            author=step.author,
            text=step.text,
            tokens=step.n_tokens,
            p=step.p,
            q=step.q,
            score=step.score,
            acceptance=step.a,
            accepted=step.accepted,
            unfamiliar=step.far,
            rejected_text=step.rejected_text,
            rejected_tokens=step.rejected_tokens,
            truncated=step.truncated,
            seconds=round(step.seconds, 6),
        )


class Details(BaseModel):
    """Tokens of the answer by author, and draft tokens that were thrown away (in no sum)."""

    draft_tokens: int
    target_tokens: int
    discarded_tokens: int


class Usage(BaseModel):
    """In tokens of the target, the end of the text included."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    completion_tokens_details: Details

    @classmethod
    def of(cls, done: Done) -> Usage:
        draft, target = done.tokens("draft"), done.tokens("target")
        details = Details(draft_tokens=draft, target_tokens=target, discarded_tokens=done.discarded_tokens)
        total = done.prompt_tokens + draft + target
        return cls(
            prompt_tokens=done.prompt_tokens,
            completion_tokens=draft + target,
            total_tokens=total,
            completion_tokens_details=details,
        )


class Summary(BaseModel):
    """How an answer was made."""

    method: str
    seed: int
    seconds: float
    tokens_per_second: float
    offered: int = Field(description="Drafted steps that were judged.")
    accepted: int
    steps: list[StepReply]

    @classmethod
    def of(cls, done: Done, seed: int) -> Summary:
        n_tokens = done.tokens("draft") + done.tokens("target")
        return cls(
            method=done.method,
            seed=seed,
            seconds=round(done.seconds, 6),
            tokens_per_second=round(n_tokens / max(done.seconds, 1e-9), 3),
            offered=sum(s.accepted is not None for s in done.steps),
            accepted=sum(bool(s.accepted) for s in done.steps),
            steps=[StepReply.of(i, s) for i, s in enumerate(done.steps)],
        )


class Reply(BaseModel):
    """The part of a reply that is the same for both endpoints."""

    id: str
    created: int
    model: str
    usage: Usage
    semspec: Summary


class AnswerMessage(BaseModel):
    role: Literal["assistant"] = "assistant"
    content: str
    refusal: None = None


class ChatChoice(BaseModel):
    index: int = 0
    message: AnswerMessage
    logprobs: None = None
    finish_reason: Literal["stop", "length"]


class ChatReply(Reply):
    object: Literal["chat.completion"] = "chat.completion"
    choices: list[ChatChoice]


class TextChoice(BaseModel):
    index: int = 0
    text: str
    logprobs: None = None
    finish_reason: Literal["stop", "length"]


class TextReply(Reply):
    object: Literal["text_completion"] = "text_completion"
    choices: list[TextChoice]


class Dial(BaseModel):
    """What a request gets when it says nothing, and what it may choose."""

    draft: str
    target: str
    method: str
    methods: list[str]
    gamma: int
    rule: str
    bias: float
    threshold: float | None
    temperature: float
    top_p: float
    max_tokens: int


class Model(BaseModel):
    id: str
    object: Literal["model"] = "model"
    created: int
    owned_by: str = "semspec"
    semspec: Dial


class ModelList(BaseModel):
    object: Literal["list"] = "list"
    data: list[Model]


class Health(BaseModel):
    status: Literal["ok", "closing"]
    running: int
    waiting: int


class Error(BaseModel):
    message: str
    type: str
    param: str | None = None
    code: str | None = None


class ErrorReply(BaseModel):
    error: Error

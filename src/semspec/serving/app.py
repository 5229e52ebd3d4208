"""The routes: OpenAI's endpoints, models, health, metrics, and the page.

Turns requests into jobs and their events into replies; every failure is OpenAI's error JSON. Knows HTTP; decides
nothing about decoding.
"""

from __future__ import annotations

import asyncio
import json
import secrets
import time
from collections.abc import AsyncIterator
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any

from fastapi import Depends, FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, JSONResponse, StreamingResponse
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from starlette.exceptions import HTTPException
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from semspec.errors import UserError
from semspec.serving.decoder import Ask, Done, Piece
from semspec.serving.desk import Desk, Failed, Job, Refused
from semspec.serving.protocol import (
    AnswerMessage,
    ChatChoice,
    ChatReply,
    ChatRequest,
    CompletionRequest,
    Dial,
    Error,
    ErrorReply,
    Health,
    Model,
    ModelList,
    StepReply,
    Summary,
    TextChoice,
    TextReply,
    Usage,
)

PATHS = ("/v1/chat/completions", "/v1/completions")
BEARER = HTTPBearer(auto_error=False, description="The server's API key, where it has one.")
MAX_BODY = 4 << 20  # bytes of a request; the longest prompt is far below
PING = 15.0  # seconds of silence after which a stream shows that it lives
KINDS = {401: "authentication_error", 404: "not_found_error", 429: "rate_limit_error"}
EVENT = {"type": "object", "properties": {"data": {"type": "string"}}, "required": ["data"]}  # one of a stream
POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src 'self'; img-src data:"
ERRORS: dict[int | str, dict[str, Any]] = {
    400: {"model": ErrorReply, "description": "The request asks for what cannot be."},
    401: {"model": ErrorReply, "description": "The API key is missing or wrong."},
    404: {"model": ErrorReply, "description": "Another model is served."},
    413: {"model": ErrorReply, "description": "The body is too long."},
    429: {"model": ErrorReply, "description": "The queue is full; `Retry-After` says when to come back."},
    503: {"model": ErrorReply, "description": "The server is shutting down."},
    504: {"model": ErrorReply, "description": "No answer within the time limit."},
    "default": {"model": ErrorReply, "description": "Any other failure."},
}


class ApiError(Exception):
    """A failure as the client will see it."""

    def __init__(self, status: int, message: str, param: str | None = None, headers: dict[str, str] | None = None):
        super().__init__(message)
        self.status, self.param, self.headers = status, param, headers

    @property
    def content(self) -> dict[str, Any]:
        kind = KINDS.get(self.status, "invalid_request_error" if self.status < 500 else "server_error")
        message, param = (None if s is None else s.encode(errors="replace").decode() for s in (str(self), self.param))
        return ErrorReply(error=Error(message=message or "", type=kind, param=param)).model_dump()


class BodyLimit:
    """Refuse a body of more than `MAX_BODY` bytes before it is read as JSON, which would hold up every answer."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        read = 0

        async def counted() -> Message:
            nonlocal read
            message = await receive()
            read += len(message.get("body", b""))
            if read > MAX_BODY:
                raise HTTPException(413, f"the body is longer than {MAX_BODY >> 20} MiB")
            return message

        await self.app(scope, counted, send)


def make_app(desk: Desk, name: str, api_key: str | None = None, hosts: list[str] | None = None) -> FastAPI:
    """The application. `hosts`: names by which it may be addressed, None = any."""
    app = FastAPI(title="SemanticSpec", version="1", docs_url=None, redoc_url=None)
    app.add_middleware(BodyLimit)
    if hosts is not None:
        app.add_middleware(TrustedHostMiddleware, allowed_hosts=hosts, www_redirect=False)
    _handle_errors(app, desk)

    async def key(given: Annotated[HTTPAuthorizationCredentials | None, Depends(BEARER)]) -> None:
        sent = given.credentials if given else ""
        if not secrets.compare_digest(sent.encode(), (api_key or "").encode()):
            raise ApiError(401, "the API key is missing or wrong", headers={"WWW-Authenticate": "Bearer"})

    locks = [Depends(key)] if api_key else []
    guarded: dict[str, Any] = {"dependencies": locks, "responses": ERRORS}
    created = int(time.time())
    settings, decoder = desk.decoder.settings, desk.decoder
    model = Model(
        id=name,
        created=created,
        semspec=Dial(
            draft=Path(settings.models.draft).name,
            target=Path(settings.models.target).name,
            method=decoder.method,
            methods=decoder.methods,
            gamma=settings.bench.gamma,
            rule=settings.decide.rule,
            bias=settings.decide.bias,
            threshold=settings.decide.threshold,
            temperature=settings.bench.temperature,
            top_p=settings.bench.top_p,
            max_tokens=settings.serve.max_tokens,
        ),
    )

    def chosen(asked: str) -> None:
        if asked != name:
            raise ApiError(404, f"the model '{asked[:100]}' is not served here; '{name}' is", "model")

    stream_too = {200: {"content": {"text/event-stream": {"schema": EVENT}}}}
    completions = guarded | {"responses": ERRORS | stream_too}

    @app.post("/v1/chat/completions", response_model=ChatReply, **completions)
    async def chat(body: ChatRequest, request: Request) -> Any:
        chosen(body.model)
        return await _answer(desk, name, body, request, "chatcmpl-")

    @app.post("/v1/completions", response_model=TextReply, **completions)
    async def complete(body: CompletionRequest, request: Request) -> Any:
        chosen(body.model)
        return await _answer(desk, name, body, request, "cmpl-")

    @app.get("/v1/models", **guarded)
    async def models() -> ModelList:
        return ModelList(data=[model])

    @app.get("/v1/models/{model_id}", **guarded)
    async def one_model(model_id: str) -> Model:
        chosen(model_id)
        return model

    @app.get("/health")
    async def health() -> Health:
        return Health(status="closing" if desk.closing else "ok", running=desk.running, waiting=desk.waiting)

    @app.get("/metrics", response_class=Response, include_in_schema=False, dependencies=locks)
    async def metrics() -> Response:
        return Response(desk.metrics.text(), media_type="text/plain; version=0.0.4; charset=utf-8")

    page = files("semspec.serving").joinpath("page.html").read_text(encoding="utf-8")

    @app.get("/", response_class=HTMLResponse, include_in_schema=False)
    async def show() -> HTMLResponse:
        return HTMLResponse(page, headers={"Content-Security-Policy": POLICY, "Referrer-Policy": "no-referrer"})

    for schema in ("ChatRequest", "CompletionRequest"):  # the document is made once: it may say which model there is
        app.openapi()["components"]["schemas"][schema]["properties"]["model"]["enum"] = [name]
    return app


def _handle_errors(app: FastAPI, desk: Desk) -> None:
    def reply(request: Request, error: ApiError) -> JSONResponse:
        if request.url.path in PATHS:
            desk.metrics.request(request.url.path, error.status)
        return JSONResponse(error.content, error.status, error.headers)

    @app.exception_handler(ApiError)
    async def ours(request: Request, error: ApiError) -> JSONResponse:
        return reply(request, error)

    @app.exception_handler(_Counted)
    async def counted(request: Request, error: _Counted) -> JSONResponse:
        return JSONResponse(error.content, error.status)

    @app.exception_handler(UserError)
    async def user(request: Request, error: UserError) -> JSONResponse:
        return reply(request, ApiError(400, str(error)))

    @app.exception_handler(Refused)
    async def refused(request: Request, error: Refused) -> JSONResponse:
        later = {"Retry-After": str(error.retry_after)} if error.retry_after else None
        return reply(request, ApiError(error.status, str(error), headers=later))

    @app.exception_handler(HTTPException)
    async def http(request: Request, error: HTTPException) -> JSONResponse:
        return reply(request, ApiError(error.status_code, str(error.detail), headers=dict(error.headers or {})))

    @app.exception_handler(RequestValidationError)
    async def invalid(request: Request, error: RequestValidationError) -> JSONResponse:
        first = error.errors()[0]
        if first["type"] == "json_invalid":
            return reply(request, ApiError(400, f"the body is no JSON: {first['ctx']['error']}"))
        # a union adds the names of its members to the place
        parts = [p for p in map(str, first["loc"]) if p.isidentifier() or p.isdigit()]
        param = ".".join(p for p in parts if p not in ("body", "str", "int")) or None
        return reply(request, ApiError(400, f"{param or 'the body'}: {first['msg']}", param))

    @app.exception_handler(Exception)
    async def unexpected(request: Request, error: Exception) -> JSONResponse:
        return reply(request, ApiError(500, "the server failed; its log says why"))


class _Counted(ApiError):
    """The failure of a job, which the desk has counted."""


async def _answer(desk: Desk, name: str, body: ChatRequest | CompletionRequest, request: Request, prefix: str) -> Any:
    """The reply to a request, or the stream of it; an error status while nothing was sent yet."""
    seed = secrets.randbits(31) if body.seed is None else body.seed
    job = desk.submit(body.ask(seed))
    job.watcher = asyncio.create_task(_until_gone(request, job))
    writer = _Writer(name, prefix, seed, bool(body.stream_options and body.stream_options.include_usage), job.ask)
    event = await job.events.get()
    if body.stream and not isinstance(event, Failed):
        stream = _stream(job, writer)
        return StreamingResponse(stream, media_type="text/event-stream", headers={"Cache-Control": "no-cache"})
    while not isinstance(event, Done | Failed):
        event = await job.events.get()
    if isinstance(event, Failed):
        raise _Counted(event.status, event.message)
    return writer.whole(event)


async def _until_gone(request: Request, job: Job) -> None:
    """Stop the job when the client hangs up, which is also said once the reply is out."""
    while (await request.receive())["type"] != "http.disconnect":
        pass
    job.stop()


async def _stream(job: Job, writer: _Writer) -> AsyncIterator[str]:
    """Server-sent events: a chunk for each piece, the end, usage if asked for, `[DONE]`; or an error."""
    try:
        yield writer.begin()
        while True:
            try:
                event = await asyncio.wait_for(job.events.get(), PING)
            except TimeoutError:
                yield ": still writing\n\n"
                continue
            if isinstance(event, Piece):
                yield writer.piece(event)
            elif isinstance(event, Done):
                for chunk in writer.end(event):
                    yield chunk
                return
            elif isinstance(event, Failed):
                yield _event(ApiError(event.status, event.message).content)
                return
    finally:
        job.stop()  # without effect where it has ended


def _event(data: dict[str, Any]) -> str:
    return f"data: {json.dumps(data, ensure_ascii=False)}\n\n"


class _Writer:
    """Writes one answer in the shape of its endpoint."""

    def __init__(self, model: str, prefix: str, seed: int, usage: bool, ask: Ask) -> None:
        self.id, self.created, self.model = prefix + secrets.token_hex(12), int(time.time()), model
        self.seed, self.usage, self.raw = seed, usage, ask.raw

    def _head(self) -> dict[str, Any]:
        return {"id": self.id, "created": self.created, "model": self.model}

    def whole(self, done: Done) -> ChatReply | TextReply:
        head = self._head() | {"usage": Usage.of(done), "semspec": Summary.of(done, self.seed)}
        if self.raw:
            return TextReply(choices=[TextChoice(text=done.text, finish_reason=done.finish)], **head)
        message = AnswerMessage(content=done.text)
        return ChatReply(choices=[ChatChoice(message=message, finish_reason=done.finish)], **head)

    def _chunk(self, delta: dict[str, str], finish: str | None = None, **more: Any) -> str:
        choice: dict[str, Any] = {"index": 0, "logprobs": None, "finish_reason": finish}
        choice |= {"text": delta.get("content", "")} if self.raw else {"delta": delta}
        kind = "text_completion" if self.raw else "chat.completion.chunk"
        return _event(self._head() | {"object": kind, "choices": [choice]} | more)

    def begin(self) -> str:
        return self._chunk({"role": "assistant", "content": ""})

    def piece(self, piece: Piece) -> str:
        if piece.step is None:
            about: dict[str, Any] = {"index": piece.index, "author": piece.author}
        else:
            about = StepReply.of(piece.index, piece.step).model_dump(mode="json")
        return self._chunk({"content": piece.text}, semspec={"step": about, "settled": piece.step is not None})

    def end(self, done: Done) -> list[str]:
        summary = Summary.of(done, self.seed).model_dump(mode="json", exclude={"steps"})
        chunks = [self._chunk({}, done.finish, semspec=summary | {"usage": Usage.of(done).model_dump()})]
        if self.usage:
            kind = "text_completion" if self.raw else "chat.completion.chunk"
            usage = {"object": kind, "choices": [], "usage": Usage.of(done).model_dump()}
            chunks.append(_event(self._head() | usage))
        return [*chunks, "data: [DONE]\n\n"]

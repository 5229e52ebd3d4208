"""An SGLang server over HTTP: reading texts, with what the model thought of them, and writing token by token.

The requests are SGLang's own `/generate`; which hidden states are wanted is said as `sglang_server` has it. Knows
nothing of sessions or steps.
"""

from __future__ import annotations

import base64
import json
import uuid
from collections.abc import Generator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from typing import Any

import httpx
import numpy as np

from semspec.engine.base import Sampling
from semspec.errors import UserError
from semspec.sglang_server.protocol import KEY, Wish, request_id, unpack

TOP = 64  # likeliest tokens of each distribution that come over the wire; what `Sampling` looks at
READ_TEXTS = 16  # of one request: with all layers of a large model, an answer has 2 MB of states a text
CONNECT_SECONDS = 5.0
TAIL = 1.5  # of 1, 1.5 and 2 the nearest: entropies of SmolLM2-135M come out .03 nats off on average (docs/log.md)


@cache
def _tail_entropy(known: int, vocab: int) -> float:
    """In nats, of a distribution over the ranks from `known` + 1 on."""
    weights = np.arange(known + 1, vocab + 1, dtype=np.float64) ** -TAIL
    p = weights / weights.sum() if len(weights) else np.ones(1)
    return float(-(p * np.log(p)).sum())


@dataclass
class Reading:
    """What a model thought of the last `n` tokens of a text, and what would follow.

    ids, logprobs: `[n + 1, TOP]`, the likeliest tokens in front of each of these and behind the last, likeliest first.
    given: `[n]`, the log-probability of each token. pooled: `[segments, layers, hidden]`.
    """

    ids: np.ndarray
    logprobs: np.ndarray
    given: np.ndarray
    pooled: np.ndarray

    def scores(self, vocab: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Log-probability, entropy and likeliest log-probability `[n]` each, of `n` tokens.

        The entropy is an estimate: what is left of each distribution is taken to fall off as rank ** -`TAIL`.
        """
        logp = self.logprobs[:-1].astype(np.float64)
        p = np.exp(logp)
        left = np.clip(1 - p.sum(1), 1e-30, None)
        entropy = left * (_tail_entropy(logp.shape[1], vocab) - np.log(left)) - (p * logp).sum(1)
        return self.given, entropy.astype(np.float32), self.logprobs[:-1, 0]


class Server:
    """One SGLang server. Raises `UserError` when it can't be reached or refuses a request."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._http = httpx.Client(
            base_url=url,
            timeout=httpx.Timeout(None, connect=CONNECT_SECONDS),  # a request may wait behind many others
            # the server closes a connection that was idle for 5 s; to use one as it is closed is an error
            limits=httpx.Limits(max_connections=None, keepalive_expiry=2),
            trust_env=False,
        )

    def model(self) -> str:
        """The path or name of the model that it was started with."""
        try:
            info = self._answer(self._http.get("/model_info"))
        except httpx.HTTPError as e:
            raise self._lost(e) from None
        if not isinstance(info, dict) or "model_path" not in info:
            raise UserError(f"{self.url} answers, but not as SGLang does; correct engine.ROLE.url")
        return str(info["model_path"])

    def read(
        self, texts: Sequence[Sequence[int]], bounds: Sequence[Sequence[int]], layers: Sequence[int] | None
    ) -> list[Reading]:
        """For each text, what the model thought of its tokens from `bounds[i][0]` on, at least 1, one pass each.

        Pooled are the segments between the bounds, over `layers` (None: of no layer). What the server has of the text
        up to there is not computed again.
        """
        out = []
        for start in range(0, len(texts), READ_TEXTS):
            part = slice(start, start + READ_TEXTS)
            out += self._read(texts[part], bounds[part], layers)
        return out

    def _read(
        self, texts: Sequence[Sequence[int]], bounds: Sequence[Sequence[int]], layers: Sequence[int] | None
    ) -> list[Reading]:
        pooled = layers is not None
        names = [request_id(Wish(tuple(b), tuple(layers))) if layers is not None else uuid.uuid4().hex for b in bounds]
        body = {
            "input_ids": [list(t) for t in texts],
            "rid": names,
            "sampling_params": {"temperature": 0, "max_new_tokens": 1},
            "return_logprob": True,
            "logprob_start_len": [b[0] - 1 for b in bounds],  # a distribution is that of the token in front
            "top_logprobs_num": TOP,
            "return_flat_raw_top_logprobs": True,
            "return_flat_raw_output_top_logprobs": True,
            "return_flat_raw_top_logprobs_b64": True,
        }
        try:
            answers = self._answer(self._http.post("/generate", json=body))
        except httpx.HTTPError as e:
            raise self._lost(e) from None
        return [self._reading(a["meta_info"], b if pooled else ()) for a, b in zip(answers, bounds, strict=True)]

    def _reading(self, found: dict[str, Any], bounds: Sequence[int]) -> Reading:
        ids, logprobs = (
            np.concatenate([_array(found, f"{side}_top_logprobs_{what}", kind) for side in ("input", "output")])
            for what, kind in (("idx", "<i4"), ("val", "<f4"))
        )
        given = np.array([value for value, *_ in found["input_token_logprobs"][1:]], dtype=np.float32)
        pooled = np.empty((0, 0, 0), dtype=np.float32)
        if bounds:
            lengths = np.diff(bounds).tolist()
            counts, shape, states = unpack(found[KEY][0]) if found.get(KEY) else ([], [], b"")
            if counts != lengths:
                raise UserError(
                    f"the SGLang server at {self.url} pooled {counts or 'nothing'} of {lengths} tokens; "
                    "start it as docs/engines.md says"
                )
            pooled = np.frombuffer(states, dtype="<f4").reshape(shape)
        return Reading(ids, logprobs, given, pooled)

    def write(
        self, text: Sequence[int], sampling: Sampling, max_tokens: int, seed: int, eos: Sequence[int]
    ) -> Generator[int, None, None]:
        """The tokens that follow, as they come; closing the iterator ends the request."""
        name, seen, done = uuid.uuid4().hex, 0, False
        drawn: dict[str, Any] = {"temperature": 0}
        if sampling.temperature:
            drawn = {
                "temperature": sampling.temperature,
                "top_p": sampling.top_p,
                "top_k": sampling.top_k,
                "sampling_seed": seed,  # SGLang heeds it with --enable-deterministic-inference only
            }
        body = {
            "input_ids": list(text),
            "rid": name,
            "stream": True,
            "sampling_params": {**drawn, "max_new_tokens": max_tokens, "stop_token_ids": list(eos)},
        }
        try:
            with self._http.stream("POST", "/generate", json=body) as response:
                if response.is_error:
                    response.read()
                    self._answer(response)
                for line in response.iter_lines():
                    data = line.removeprefix("data:").strip()
                    if data == "[DONE]":
                        done = True
                    elif data:
                        found = json.loads(data)
                        ended = found.get("meta_info", {}).get("finish_reason") or {}
                        if "error" in found or ended.get("type") == "abort":
                            raise self._refused(found if "error" in found else ended)
                        yield from found["output_ids"][seen:]
                        seen = len(found["output_ids"])
        except httpx.HTTPError as e:
            raise self._lost(e) from None
        finally:
            if not done:  # SGLang notices a closed connection after seconds only
                self._abort(name)

    def _abort(self, name: str) -> None:
        with suppress(httpx.HTTPError):  # it has ended with its server
            self._http.post("/abort_request", json={"rid": name})

    def _answer(self, response: httpx.Response) -> Any:
        try:
            found = response.json()
        except ValueError:
            found = response.text.strip()[:200]
            if not response.is_error:
                raise UserError(
                    f"{self.url} answers, but not as SGLang does ({' '.join(found.split())}); correct engine.ROLE.url"
                ) from None
        if response.is_error:
            raise self._refused(found)
        return found

    def _refused(self, found: Any) -> UserError:
        said = found.get("error", found) if isinstance(found, dict) else found
        said = said.get("message", said) if isinstance(said, dict) else said
        return UserError(f"the SGLang server at {self.url} refused a request: {' '.join(str(said).split())}")

    def _lost(self, error: httpx.HTTPError) -> UserError:
        why = type(error).__name__
        return UserError(
            f"no SGLang server answers at {self.url} ({why}); start it as docs/engines.md says, or set engine.ROLE.url"
        )


def _array(found: dict[str, Any], name: str, kind: str) -> np.ndarray:
    """An array `[rows, TOP]` of an answer; the place in front of the first token has no row."""
    flat = np.frombuffer(base64.b64decode(found[f"{name}_flat_b64"]), dtype=kind)
    return flat.reshape(found[f"{name[:-4]}_shape"])

"""An SGLang server's HTTP interface over a tiny model, as far as the engine uses it; what was asked is kept."""

from __future__ import annotations

import base64
import json
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import pairwise

import numpy as np
import torch
from conformance import plain_forward

from semspec.engine.base import Sampling
from semspec.engine.sampling import draw
from semspec.sglang_server.protocol import KEY, pack, wish_of


class FakeSglang:
    """`asked`: the bodies of `/generate`; `aborted`: request ids; `sabotage` may change an answer's meta_info."""

    def __init__(self, engine, context_length=400):
        self.engine, self.context_length = engine, context_length
        self.asked, self.aborted, self.sabotage = [], [], lambda found: None
        self._lock = threading.Lock()

    def forward(self, tokens):
        with self._lock:
            return plain_forward(self.engine, tokens)

    def read(self, tokens, start, top, name):
        """`meta_info` of a request that reads."""
        states, logits = self.forward(tokens)
        logp = torch.log_softmax(logits, dim=-1)
        said = torch.tensor(tokens[start + 1 :], dtype=torch.long)
        given = [None, *logp[start:-1].gather(1, said[:, None])[:, 0].tolist()]
        found = {"input_token_logprobs": [[x, t, None] for x, t in zip(given, tokens[start:], strict=True)]}
        for side, rows in (("input", logp[start:-1]), ("output", logp[-1:])):
            best = rows.topk(min(top, rows.shape[1]), dim=-1)
            for what, array in (("val", best.values.numpy()), ("idx", best.indices.numpy().astype(np.int32))):
                found[f"{side}_top_logprobs_{what}_flat_b64"] = base64.b64encode(array.tobytes()).decode()
            found[f"{side}_top_logprobs_shape"] = list(best.values.shape)
        if wish := wish_of(name):
            means = torch.stack([states[list(wish.layers), a:b].mean(1) for a, b in pairwise(wish.bounds)])
            counts = [b - a for a, b in pairwise(wish.bounds)]
            found[KEY] = [pack(counts, means.shape, means.numpy().tobytes())]
        self.sabotage(found)
        return found

    def write(self, tokens, params):
        """The tokens that a stream has had after each event."""
        made, stop = [], {*params["stop_token_ids"], *self.engine.eos_ids}
        sampling = Sampling(params["temperature"], params.get("top_p", 1.0), params.get("top_k", 64))
        while len(made) < min(params["max_new_tokens"], self.context_length - len(tokens)):
            logits = self.forward([*tokens, *made])[1][-1:]
            seed = (params.get("sampling_seed", 0), len(tokens) + len(made))
            uniform = torch.tensor([np.random.default_rng(seed).random()])
            made.append(int(draw(logits, sampling, uniform if sampling.temperature else None)[0]))
            yield list(made)
            if made[-1] in stop:
                return


@contextmanager
def serve(engine, **options):
    """(address, `FakeSglang`) of a server that runs `engine`'s model while the context is open."""
    fake = FakeSglang(engine, **options)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *args):
            pass

        def reply(self, found, status=200):
            body = json.dumps(found).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def do_GET(self):
            self.reply({"model_path": "/models/tiny"})

        def do_POST(self):
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            if self.path == "/abort_request":
                fake.aborted.append(body["rid"])
                return self.reply({})
            fake.asked.append(body)
            texts = [body["input_ids"]] if body.get("stream") else body["input_ids"]
            if max(map(len, texts)) > fake.context_length:
                return self.reply({"error": {"message": "The input is longer\nthan the model's context length"}}, 400)
            if body.get("stream"):
                return self.stream(body)
            parts = zip(texts, body["logprob_start_len"], body["rid"], strict=True)
            self.reply([{"meta_info": fake.read(t, s, body["top_logprobs_num"], r)} for t, s, r in parts])

        def stream(self, body):
            self.send_response(200)
            self.send_header("Connection", "close")
            self.end_headers()
            self.close_connection = True
            try:
                for ids in fake.write(body["input_ids"], body["sampling_params"]):
                    self.wfile.write(b"data: " + json.dumps({"output_ids": ids}).encode() + b"\n\n")
                    self.wfile.flush()
                self.wfile.write(b"data: [DONE]\n\n")
            except OSError:
                pass  # the client has what it wanted

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", fake
    finally:
        server.shutdown()
        server.server_close()

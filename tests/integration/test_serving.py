"""The server through real sockets: clients, streams, limits, and the ends of both client and server."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families
from served import serving, settings, slow_down

from semspec.decoding import Setup
from semspec.errors import UserError
from semspec.serving.app import MAX_BODY

HI = [{"role": "user", "content": "hi"}]
pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    chosen = settings(tmp_path_factory.mktemp("project"), "serve.max_tokens=48", "serve.max_prompt_tokens=480")
    with serving(chosen) as running:
        yield running


def ask(server, path="/v1/chat/completions", **body) -> httpx.Response:
    body = {"model": "tiny"} | body
    if path.endswith("chat/completions"):
        body.setdefault("messages", HI)
    return httpx.post(server.url + path, json=body, timeout=60)


def stream(server, **body) -> list[dict]:
    """The events of a streamed chat, `[DONE]` checked and left out."""
    body = {"model": "tiny", "messages": HI, "stream": True} | body
    with httpx.stream("POST", server.url + "/v1/chat/completions", json=body, timeout=60) as reply:
        assert reply.status_code == 200 and reply.headers["content-type"].startswith("text/event-stream")
        lines = [line.removeprefix("data: ") for line in reply.iter_lines() if line.startswith("data: ")]
    assert lines[-1] == "[DONE]"
    return [json.loads(line) for line in lines[:-1]]


def metric(server, name: str, **labels: str) -> float:
    text = httpx.get(server.url + "/metrics", headers={"authorization": "Bearer s3cret"}).text
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            if sample.name == name and labels.items() <= sample.labels.items():
                return sample.value
    return 0.0


def wait_for(condition, seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not come to pass"
        time.sleep(0.02)


def test_an_answer_says_who_wrote_it(server):
    """Content is the steps' text; usage adds up by author; p and q are the probes'."""
    got = ask(server, seed=3).json()
    steps, usage = got["semspec"]["steps"], got["usage"]
    assert got["choices"][0]["message"]["content"] == "".join(s["text"] for s in steps)
    assert {s["author"] for s in steps} == {"draft", "target"}
    by_author = {a: sum(s["tokens"] for s in steps if s["author"] == a) for a in ("draft", "target")}
    details = usage["completion_tokens_details"]
    assert (details["draft_tokens"], details["target_tokens"]) == (by_author["draft"], by_author["target"])
    assert usage["completion_tokens"] == sum(by_author.values()) <= 48
    assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]
    for step in steps:
        assert step["accepted"] is (step["author"] == "draft") and 0 < step["p"] <= 1 and 0 < step["q"] <= 1
        assert (step["rejected_text"] is None) is step["accepted"]
    assert got["semspec"]["seed"] == 3 and got["semspec"]["method"] == "semantic"


def test_a_stream_is_the_same_answer(server):
    """Chunks join to the whole; every step is settled once; what the target writes comes before its step is settled."""
    whole = ask(server, seed=1, gamma=2, bias=5, threshold=0.5)
    events = stream(server, seed=1, gamma=2, bias=5, threshold=0.5, stream_options={"include_usage": True})
    chunks = [e["choices"][0] for e in events if e["choices"]]
    text = "".join(c["delta"].get("content", "") for c in chunks)
    settled = [e["semspec"]["step"] for e in events if e.get("semspec", {}).get("settled")]
    early = [e["semspec"]["step"] for e in events if e.get("semspec", {}).get("settled") is False]
    assert text == "".join(s["text"] for s in settled)
    assert [s["index"] for s in settled] == list(range(len(settled)))
    assert {s["author"] for s in early} <= {"target"}
    assert chunks[0]["delta"]["role"] == "assistant"
    assert chunks[-1]["finish_reason"] in ("stop", "length") and all(c["finish_reason"] is None for c in chunks[:-1])
    assert events[-1]["choices"] == [] and events[-1]["usage"]["completion_tokens"] == sum(s["tokens"] for s in settled)
    assert whole.status_code == 200 and whole.json()["choices"][0]["message"]["content"] == text
    target = stream(server, method="target", seed=0)
    assert sum(e.get("semspec", {}).get("settled") is False for e in target) > 3


@pytest.mark.parametrize(
    "method",
    [
        "target",
        "draft",
        "prompt_lookup",
        "specreason",
        "speculative_thinking",
        "reward_guided",
        "semantic",
        "semantic_hybrid",
        "semantic_random",
    ],
)
def test_every_method_answers_a_conversation_and_a_raw_prompt(server, method):
    """A conversation of several turns is another prompt than its last question, and is answered by every method."""
    talk = [
        {"role": "system", "content": "Be brief."},
        *HI,
        {"role": "assistant", "content": "Hello."},
        {"role": "user", "content": [{"type": "text", "text": "How "}, {"type": "text", "text": "so?"}]},
    ]
    long = ask(server, messages=talk, method=method, seed=0, max_tokens=12)
    short = ask(server, messages=[talk[0], talk[-1]], method=method, seed=0, max_tokens=12)
    assert long.status_code == short.status_code == 200, long.text
    assert long.json()["usage"]["prompt_tokens"] > short.json()["usage"]["prompt_tokens"]
    raw = ask(server, "/v1/completions", prompt="hi there", method=method, seed=0, max_tokens=12).json()
    assert raw["object"] == "text_completion" and raw["usage"]["prompt_tokens"] == len(b"hi there")


def test_an_answer_fits_into_the_context(server):
    """It is no longer than the context of 512 tokens allows, whatever is asked for."""
    for limit in ({}, {"max_tokens": 48}):
        most = ask(server, "/v1/completions", prompt="x" * 475, seed=0, method="target", **limit).json()["usage"]
        assert most["prompt_tokens"] == 475 and 0 < most["completion_tokens"] <= 512 - 475


def test_models_that_name_no_context_answer(server):
    engines = server.desk.decoder.draft, server.desk.decoder.target
    with pytest.MonkeyPatch.context() as patch:
        for engine in engines:
            patch.setattr(engine, "context", None)
        assert ask(server, seed=0).status_code == 200


def test_the_same_seed_gives_the_same_answer(server):
    """Also when sampling; another seed gives another answer."""
    one, two, other = (
        ask(server, temperature=1.5, top_p=0.9, seed=s, max_tokens=24).json()["choices"] for s in (5, 5, 6)
    )
    assert one == two != other
    assert ask(server, seed=-7).json()["semspec"]["seed"] == -7


def test_stop_sequences_end_the_text_in_front_of_them(server):
    """Streamed or not, nothing of the stop sequence is shown, also where it crosses a step."""
    whole = ask(server, method="target", seed=0).json()["choices"][0]["message"]["content"]
    steps = ask(server, method="target", seed=0).json()["semspec"]["steps"]
    border = len(steps[0]["text"])
    for at in (4, border - 1):
        stop = whole[at : at + 2]
        wanted = whole[: whole.index(stop)]
        got = ask(server, method="target", seed=0, stop=stop).json()
        assert got["choices"][0]["message"]["content"] == wanted and got["choices"][0]["finish_reason"] == "stop"
        assert "".join(s["text"] for s in got["semspec"]["steps"]).startswith(wanted)
        events = stream(server, method="target", seed=0, stop=["never comes", stop])
        assert "".join(e["choices"][0]["delta"].get("content", "") for e in events) == wanted
    assert (
        ask(server, method="target", seed=0, stop=["never comes"]).json()["choices"][0]["message"]["content"] == whole
    )


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"gama": 2}, "gama"),
        ({"gamma": 0}, "gamma"),
        ({"method": "magic"}, "method"),
        ({"bias": "much"}, "bias"),
        ({"threshold": 2}, "threshold"),
        ({"temperature": -1}, "temperature"),
        ({"top_p": 0}, "top_p"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_tokens": 49}, "at most 48"),
        ({"n": 2}, "n:"),
        ({"logprobs": True}, "logprobs"),
        ({"stream_options": {"usage": True}}, "usage"),
        ({"seed": 2**70}, "seed"),
        ({"stop": ["a"] * 5}, "stop"),
        ({"stop": ""}, "stop"),
        ({"messages": []}, "messages"),
        ({"messages": [{"role": "assistant", "content": "Hello."}]}, "the user's"),
        ({"messages": [{"role": "user", "content": "  "}]}, "empty"),
        ({"messages": [{"role": "tool", "content": "x"}]}, "role"),
        ({"messages": [{"role": "user", "content": "x" * 1000}]}, "tokens"),
        ({"method": "speculative_sampling"}, "vocabulary"),
        ({"response_format": {"type": "json_object"}}, "response_format"),
    ],
)
@pytest.mark.parametrize("streamed", [False, True])
def test_a_rejected_value_is_openais_error(server, body, words, streamed):
    """400 with a sentence that names it; never a 500, and no stream is begun."""
    reply = ask(server, stream=streamed, **body)
    assert reply.status_code == 400 and reply.headers["content-type"] == "application/json"
    error = reply.json()["error"]
    assert words in error["message"] and error["type"] == "invalid_request_error", error


def test_bodies_that_are_no_requests(server):
    """Broken JSON, lone surrogates, another content type, an unknown model or path."""
    url = server.url + "/v1/chat/completions"
    as_json = {"content-type": "application/json"}
    lone = b'{"model": "tiny", "messages": [{"role": "user", "content": "\\ud800"}]}'
    odd = b'{"model": "\\ud800", "\\ud801": 1, "messages": [{"role": "user", "content": "x"}]}'
    for content, headers in (
        (b"{", as_json),
        (b"\xff", as_json),
        (lone, as_json),
        (odd, as_json),
        (b"{}", {"content-type": "text/plain"}),
    ):
        assert httpx.post(url, content=content, headers=headers).status_code == 400
    told = httpx.post(url, content=b"{", headers=as_json).json()["error"]
    assert told["message"].startswith("the body is no JSON") and told["param"] is None
    long = httpx.post(url, content=b'{"model": "' + b"x" * MAX_BODY + b'"}', headers=as_json)
    assert long.status_code == 413 and "longer than 4 MiB" in long.json()["error"]["message"]
    assert "function" not in ask(server, stop=[5]).json()["error"]["message"]
    assert ask(server, model="gpt-9").status_code == 404
    assert httpx.get(server.url + "/v1/models/gpt-9").json()["error"]["type"] == "not_found_error"
    assert httpx.get(url).status_code == 405
    assert httpx.get(server.url + "/health", headers={"host": "elsewhere.example"}).status_code == 400
    assert httpx.get(server.url + "/health", headers={"host": "[::1]:8000"}).status_code == 200


def test_models_health_and_metrics(server):
    """The model tells its dial and no path; the metrics parse and count what was asked."""
    (model,) = httpx.get(server.url + "/v1/models").json()["data"]
    assert model["id"] == "tiny" and model["semspec"]["draft"] == "draft" and "semantic" in model["semspec"]["methods"]
    assert "speculative_sampling" not in model["semspec"]["methods"]
    assert ask(server, seed=3).status_code == 200  # some of its steps are the draft's and some are not
    before = metric(server, "semspec_tokens_total", author="target")
    n = metric(server, "semspec_requests_total", path="/v1/completions", status="200")
    used = ask(server, "/v1/completions", prompt="x", method="target", seed=0).json()["usage"]["completion_tokens"]
    assert metric(server, "semspec_tokens_total", author="target") == before + used
    assert metric(server, "semspec_requests_total", path="/v1/completions", status="200") == n + 1
    assert 0 < metric(server, "semspec_acceptance_rate") < 1
    assert metric(server, "semspec_answer_seconds_count", method="semantic") > 0
    assert metric(server, "semspec_request_seconds_bucket", le="+Inf") > 0
    assert httpx.get(server.url + "/health").json() == {"status": "ok", "running": 0, "waiting": 0}


def test_the_openai_client(server):
    """Whole, streamed, and five at once; errors arrive as the client's own exceptions."""
    openai = pytest.importorskip("openai")
    client = openai.OpenAI(base_url=server.url + "/v1", api_key="unused", max_retries=0)
    assert client.models.list().data[0].id == "tiny"
    extra = {"method": "semantic", "gamma": 2, "bias": 0.5}
    got = client.chat.completions.create(model="tiny", messages=HI, seed=1, max_tokens=20, extra_body=extra)
    assert got.usage.completion_tokens <= 20 and got.semspec["steps"][0]["author"] in ("draft", "target")
    with client.chat.completions.create(
        model="tiny", messages=HI, seed=1, stream=True, extra_body={"bias": 3}
    ) as chunks:
        text = "".join(c.choices[0].delta.content or "" for c in chunks)
    assert text
    assert (
        client.completions.create(model="tiny", prompt="x", max_tokens=8, extra_body={"method": "target"})
        .choices[0]
        .text
    )

    def one(i: int) -> str:
        many = client.chat.completions.create(model="tiny", messages=HI, seed=i, max_tokens=24)
        return many.choices[0].message.content

    with ThreadPoolExecutor(5) as pool:
        together = list(pool.map(one, range(5)))
    assert together == [one(i) for i in range(5)]
    with pytest.raises(openai.BadRequestError, match="gamma"):
        client.chat.completions.create(model="tiny", messages=HI, extra_body={"gamma": 99})


def raw_request(server, body: dict) -> socket.socket:
    """As curl sends it, over a socket that the test may drop."""
    data = json.dumps({"model": "tiny", "messages": HI} | body).encode()
    host, port = re.fullmatch(r"http://(.*):(\d+)", server.url).groups()
    sock = socket.create_connection((host, int(port)))
    head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\n"
    sock.sendall(head.encode() + b"Content-Length: %d\r\n\r\n" % len(data) + data)
    return sock


@pytest.fixture
def slow(tmp_path):
    """A queue of one place, passes of 30 ms, steps of up to 8 tokens."""
    with serving(settings(tmp_path, "serve.max_tokens=400", "serve.queue=1", "serve.timeout=60"), "target") as running:
        slow_down(running, 0.03)
        yield running


def test_an_engine_that_fails_at_work_is_no_mistake_of_the_request(tmp_path):
    """Its server is gone: 502, which clients try again, and the next answer is as if nothing had happened."""
    with serving(settings(tmp_path), "target") as running:
        alone = ask(running, seed=0, max_tokens=8).json()["choices"]
        session = running.desk.decoder.target.session

        def gone(prompt):
            raise UserError("the SGLang server can't be reached")

        running.desk.decoder.target.session = gone
        failed = ask(running, seed=0, max_tokens=8)
        assert (failed.status_code, failed.json()["error"]["type"]) == (502, "server_error")
        running.desk.decoder.target.session = session
        assert ask(running, seed=0, max_tokens=8).json()["choices"] == alone


def test_what_was_looked_at_in_vain_is_counted(server):
    """As the bench counts it, though it is in no step."""
    before = metric(server, "semspec_discarded_tokens_total")
    reply = ask(server, method="speculative_thinking", seed=0, max_tokens=40).json()
    discarded = reply["usage"]["completion_tokens_details"]["discarded_tokens"]
    assert discarded > sum(s["rejected_tokens"] for s in reply["semspec"]["steps"])
    assert metric(server, "semspec_discarded_tokens_total") == before + discarded


@pytest.mark.parametrize("streamed", [True, False])
def test_a_vanished_client_stops_the_decode(slow, streamed):
    """Within a step of the hang-up the server is idle, and the next answer is as if nothing had happened."""
    alone = ask(slow, seed=0, max_tokens=8).json()["choices"]
    sock = raw_request(slow, {"stream": streamed, "seed": 0})
    wait_for(lambda: slow.desk.running == 1)
    time.sleep(0.2)
    hung_up = time.monotonic()
    sock.close()
    wait_for(lambda: slow.desk.running == 0)
    assert time.monotonic() - hung_up < 6  # the whole answer takes twice as long
    assert metric(slow, "semspec_requests_total", status="499") == 1
    assert ask(slow, seed=0, max_tokens=8).json()["choices"] == alone


def test_a_full_queue_turns_away_and_a_client_may_leave_it(slow):
    """One runs, one waits, the third gets 429 and when to come back; who leaves the queue makes room."""
    running, waiting = raw_request(slow, {"stream": True}), None
    wait_for(lambda: slow.desk.running == 1)
    waiting = raw_request(slow, {})
    wait_for(lambda: slow.desk.waiting == 1)
    turned_away = ask(slow)
    assert turned_away.status_code == 429 and int(turned_away.headers["retry-after"]) >= 1
    assert turned_away.json()["error"]["type"] == "rate_limit_error"
    waiting.close()
    wait_for(lambda: slow.desk.waiting == 0)
    running.close()
    assert ask(slow, max_tokens=2).status_code == 200


def test_a_request_that_takes_too_long(tmp_path):
    """504 for the one that runs and for the one that waits; in a stream, an error event."""
    with serving(settings(tmp_path, "serve.max_tokens=400", "serve.timeout=3.0"), "target") as slow:
        slow_down(slow, 0.1)
        with ThreadPoolExecutor(2) as pool:
            both = [r.status_code for r in pool.map(lambda _: ask(slow, seed=0), range(2))]
        assert both == [504, 504]
        body = {"model": "tiny", "messages": HI, "stream": True}
        lines = httpx.post(slow.url + "/v1/chat/completions", json=body, timeout=60).text.strip().split("\n\n")
        assert "no answer within 3 s" in json.loads(lines[-1].removeprefix("data: "))["error"]["message"]
        assert "delta" in lines[0]


def test_an_api_key_guards_all_but_health_and_page(tmp_path):
    """401 without it or with another; health and the page tell nothing and stay open."""
    with serving(settings(tmp_path), "target", api_key="s3cret") as guarded:
        right, wrong = {"authorization": "Bearer s3cret"}, {"authorization": "Bearer s3cre"}
        for path in ("/v1/models", "/metrics"):
            assert httpx.get(guarded.url + path).status_code == 401
            assert httpx.get(guarded.url + path, headers=wrong).status_code == 401
            assert httpx.get(guarded.url + path, headers=right).status_code == 200
        assert ask(guarded).json()["error"]["type"] == "authentication_error"
        body = {"model": "tiny", "messages": HI, "max_tokens": 2}
        assert httpx.post(guarded.url + "/v1/chat/completions", json=body, headers=right).status_code == 200
        assert httpx.get(guarded.url + "/health").status_code == httpx.get(guarded.url + "/").status_code == 200


SLOW = """
import sys
sys.path.insert(0, sys.argv.pop(1))
from served import slow_down
from semspec.cli import main
from semspec.serving import command

make_server = command.make_server

def make_slow(*args):
    server, sock = make_server(*args)
    slow_down(server, 0.01)
    return server, sock

command.make_server = make_slow
sys.exit(main(sys.argv[1:]))
"""


@contextmanager
def started(root: Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """`semspec serve` in a process of its own, passes of 10 ms, and its address."""
    tests = Path(__file__).resolve().parents[1]
    command = [sys.executable, "-c", SLOW, str(tests), "serve", "--method", "target"]
    process = subprocess.Popen(command, cwd=root, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        line = process.stdout.readline()
        assert line, process.stderr.read()
        yield process, re.search(r"http://[\d.]+:\d+", line)[0]
    finally:
        process.kill()


def test_sigterm_finishes_the_running_answer_and_rejects_the_queue(tmp_path):
    """The stream ends as it should, the waiting one gets 503, one line says so, and the exit code is 0."""
    settings(tmp_path, "serve.grace=250")
    replies: dict[str, httpx.Response] = {}
    with started(tmp_path) as (process, url):
        name = httpx.get(url + "/v1/models").json()["data"][0]["id"]
        body = {"model": name, "messages": HI, "seed": 0, "max_tokens": 400}

        def post(key: str, **more) -> None:
            replies[key] = httpx.post(url + "/v1/chat/completions", json=body | more, timeout=250)

        threads = [
            threading.Thread(target=post, args=("first",), kwargs={"stream": True}),
            threading.Thread(target=post, args=("second",)),
        ]
        threads[0].start()
        wait_for(lambda: httpx.get(url + "/health").json()["running"] == 1)
        threads[1].start()
        wait_for(lambda: httpx.get(url + "/health").json()["waiting"] == 1)
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=250)
        for thread in threads:
            thread.join()
    assert process.returncode == 0, err
    assert replies["first"].text.endswith("data: [DONE]\n\n")
    assert replies["second"].status_code == 503 and replies["second"].json()["error"]["type"] == "server_error"
    assert out.strip().splitlines()[-1] == "stopped: 1 answer finished, 1 request rejected"
    assert "Traceback" not in err


def test_the_grace_period_ends(tmp_path, capsys):
    """An answer that is not done by then ends with an error, and counts as rejected."""
    with serving(settings(tmp_path, "serve.max_tokens=400", "serve.grace=0.2"), "target") as running:
        slow_down(running, 0.03)
        body = {"model": "tiny", "messages": HI, "stream": True}
        with httpx.stream("POST", running.url + "/v1/chat/completions", json=body, timeout=60) as reply:
            lines = reply.iter_lines()
            next(lines)
            running.should_exit = True
            last = [line for line in lines if line][-1]
    assert "shutting down" in json.loads(last.removeprefix("data: "))["error"]["message"]
    assert capsys.readouterr().out.splitlines()[-1] == "stopped: 0 answers finished, 1 request rejected"


def test_the_document_holds_what_it_says(tmp_path):
    """schemathesis asks what the OpenAPI document allows, and more: no 5xx, documented replies of the right shape.

    What may be answered with 400 although it fits the schema (an assistant's message first, say) is left out.
    """
    pytest.importorskip("schemathesis")
    with serving(settings(tmp_path, "serve.max_tokens=8"), api_key="s3cret") as guarded:
        done = subprocess.run(
            [
                str(Path(sys.executable).parent / "schemathesis"), "run", f"{guarded.url}/openapi.json", "--seed", "1",
                "--max-examples", "5", "--phases", "examples,coverage,fuzzing", "--generation-database", "none",
                "--exclude-checks", "positive_data_acceptance", "-H", "Authorization: Bearer s3cret",
            ],
            capture_output=True, text=True, timeout=280, check=False, env=os.environ | {"NO_COLOR": "1"}, cwd=tmp_path,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
        assert metric(guarded, "semspec_requests_total", status="200") > 0


def test_a_conversation_is_the_templates_own(server):
    """The prompt of several turns is what the chat template makes of them, where it treats all answers alike."""
    engine = server.desk.decoder.target
    engine_template = engine.tokenizer.chat_template
    engine.tokenizer.chat_template = (
        "{% for m in messages %}<{{ m['role'] }}>{{ m['content'] }}</>\n{% endfor %}"
        "{% if add_generation_prompt %}<assistant>{% endif %}"
    )
    try:
        talk = [("system", "S"), ("user", "a"), ("assistant", "b"), ("user", "c"), ("assistant", "d"), ("user", "e")]
        whole = engine._template([{"role": r, "content": c} for r, c in talk])
        setup = Setup("S", lambda a, b: False, 8, 8, history=(("a", "b"), ("c", "d")))
        assert engine.decode(setup.prompt(engine, "e")) == whole
    finally:
        engine.tokenizer.chat_template = engine_template

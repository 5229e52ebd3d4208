"""What journey.sh can't say in a line of shell: `python journey.py FUNCTION ARGUMENTS`.

Prefect is spoken to by the REST calls of its UI, the answer server by the official openai client. Each function prints
what it saw in one line; what is not as it should be ends it with a message and exit code 1.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil

LIMIT = 1800  # seconds until a server answers; a run may take as long as it likes
AT_ONCE = 5
ENDED = {"COMPLETED", "FAILED", "CANCELLED", "CRASHED"}


def fetch(url: str, body: Any = None) -> bytes:
    headers = {"Content-Type": "application/json"}
    data = None if body is None else json.dumps(body).encode()
    with urllib.request.urlopen(urllib.request.Request(url, data, headers), timeout=60) as answer:
        return bytes(answer.read())


def prefect(path: str, body: Any = None) -> Any:
    """A request to Prefect's API; once more where its database was busy."""
    while True:
        try:
            return json.loads(fetch(os.environ["PREFECT_API_URL"] + path, body))
        except urllib.error.HTTPError as e:
            if e.code != 503:
                sys.exit(f"{path}: {e.code} {e.read().decode()}")


def until(met: Callable[[], Any], what: str, limit: float = LIMIT) -> Any:
    """Wait for a true value of `met`, and return it."""
    deadline = time.monotonic() + limit
    while not (value := met()):
        if time.monotonic() > deadline:
            sys.exit(f"{what}: not within {limit:.0f} s")
        time.sleep(1)
    return value


def words(*given: str) -> None:
    """As a JSON list."""
    print(json.dumps(given))


# processes


def ports(n: str) -> None:
    """Free ports of the loopback interface."""
    taken = [socket.create_server(("127.0.0.1", 0)) for _ in range(int(n))]
    print(*(s.getsockname()[1] for s in taken))


def alive(process: str) -> bool:
    try:
        return bool(psutil.Process(int(process)).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def answers(url: str, process: str) -> None:
    """Wait until the server answers; it must not have ended."""

    def met() -> bool:
        if not alive(process):
            sys.exit(f"{url}: its server has ended")
        try:
            return bool(fetch(url))
        except OSError:
            return False

    until(met, url)


def gone(process: str) -> None:
    """Wait until a process has ended."""
    until(lambda: not alive(process), f"process {process} ends", 60)


def end(folder: str) -> None:
    """End every process that works in `folder`."""

    def inside() -> list[psutil.Process]:
        found = []
        for process in psutil.process_iter():
            try:
                if Path(process.cwd()).is_relative_to(folder):
                    found.append(process)
            except psutil.Error:
                continue
        return found

    for way in ("terminate", "kill"):
        for process in inside():
            with suppress(psutil.NoSuchProcess):  # it ended by itself
                getattr(process, way)()
        psutil.wait_procs(inside(), timeout=15)
    until(lambda: not inside(), "processes end", 15)


# Prefect


def offered(*names: str) -> None:
    """Wait until every deployment is there and something works on it."""

    def ready() -> bool:
        found = {d["name"] for d in prefect("/deployments/filter", {}) if d["status"] == "READY"}
        return found >= set(names)

    until(ready, "deployments")
    print(", ".join(names))


def run(flow: str, form: str) -> None:
    """Start a deployment with a filled form, as the UI does, and wait for its end, which must be a good one."""
    deployment = prefect(f"/deployments/name/{flow}/{flow}")
    body = {"parameters": {"request": json.loads(form)}, "state": {"type": "SCHEDULED"}}
    run_id = prefect(f"/deployments/{deployment['id']}/create_flow_run", body)["id"]

    def over() -> Any:
        state = prefect(f"/flow_runs/{run_id}")["state"]
        return state if state["type"] in ENDED else None

    state = until(over, flow, float("inf"))
    mine = {"flow_run_id": {"any_": [run_id]}}
    if state["type"] != "COMPLETED":
        lines = prefect("/logs/filter", {"logs": mine, "sort": "TIMESTAMP_DESC", "limit": 20})
        sys.exit("\n".join([*(line["message"] for line in reversed(lines)), f"{state['type']}: {state['message']}"]))
    shown = {a["key"]: a for a in prefect("/artifacts/filter", {"artifacts": mine})}
    told = f"{flow} COMPLETED; artifacts {', '.join(sorted(shown))}"
    if "report" in shown:
        page = fetch(shown["report"]["description"].removeprefix("The report: "))
        told += f"; the report's link works ({len(page):,} bytes)"
    print(told)


# the search and the registry


def search(results: str, trials: str) -> None:
    """So many trials must be complete."""
    found = json.loads(Path(results).read_text(encoding="utf-8"))
    if found["trials"]["COMPLETE"] != int(trials):
        sys.exit(f"trials: {found['trials']}, not {trials} complete")
    winner = found["winner"]
    told = f"{trials} replay trials, {len(found['front'])} on the front"
    print(f"{told}, " + (f"trial {winner['number']} wins: {winner['overrides']}" if winner else "no winner"))


def name() -> None:
    """The registered model's name, of `semspec registry list --json` on stdin."""
    print(json.load(sys.stdin)["name"])


def champion() -> None:
    """The version that is champion, of the same."""
    print(next(v["version"] for v in json.load(sys.stdin)["versions"] if "champion" in v["aliases"]))


def gate(version: str) -> None:
    """What the gate said of a version, of the same."""
    print(next(v["gate"] for v in json.load(sys.stdin)["versions"] if v["version"] == version))


# the answer server


def client(api: str) -> tuple[Any, str]:
    from openai import OpenAI

    found = OpenAI(base_url=f"{api}/v1", api_key="none", max_retries=0, timeout=300)
    return found, found.models.list().data[0].id


def questions(results: str, n: int) -> list[dict[str, Any]]:
    """The first rows of the comparison that `semantic` answered."""
    rows = [json.loads(line) for line in Path(results).read_text(encoding="utf-8").splitlines()]
    found = [row for row in rows if row["method"] == "semantic"][:n]
    return found if len(found) == n else sys.exit(f"{results} has only {len(found)} questions")


def dial(api: str) -> None:
    """How the server decodes where a request says nothing."""
    told = client(api)[0].models.list().data[0].semspec
    print(", ".join(f"{name} {told[name]}" for name in ("rule", "threshold", "bias", "gamma")))


def ask(api: str, results: str, n: str) -> None:
    """Ask questions of the comparison, some at once; each answer must be the one that was measured there."""
    openai, model = client(api)

    def one(row: dict[str, Any]) -> Any:
        message = [{"role": "user", "content": row["question"]}]
        return openai.chat.completions.create(model=model, messages=message, seed=row["seed"], max_tokens=64)

    rows, started = questions(results, int(n)), time.monotonic()
    with ThreadPoolExecutor(AT_ONCE) as pool:
        replies = list(pool.map(one, rows))
    took = time.monotonic() - started
    for row, reply in zip(rows, replies, strict=True):
        said = reply.choices[0].message.content
        if said.strip() != row["output"].strip():
            sys.exit(f"{row['question']}\nserved:   {said!r}\nmeasured: {row['output']!r}")
    steps = [step for reply in replies for step in reply.semspec["steps"]]
    kept = sum(step["author"] == "draft" for step in steps)
    told = f"{len(replies)} questions, {AT_ONCE} at once, in {took:.1f} s: each answer is the measured one"
    print(f"{told}; {kept} of {len(steps)} steps are the draft's")


def interrupt(api: str, results: str, process: str) -> None:
    """Kill the server while it streams an answer; the client must be told by an error, not by an early end."""
    import httpx
    from openai import OpenAIError

    openai, model = client(api)
    message = [{"role": "user", "content": questions(results, 1)[0]["question"]}]
    babble = {"temperature": 2, "top_p": 1, "seed": 0, "max_tokens": 500}  # a long answer
    text, killed = "", False
    try:
        stream = openai.chat.completions.create(
            model=model, messages=message, stream=True, extra_body={"method": "target"}, **babble
        )
        for chunk in stream:
            text += chunk.choices[0].delta.content or ""
            if text and not killed:
                os.kill(int(process), signal.SIGKILL)
                killed = True
    except (OpenAIError, httpx.HTTPError) as e:
        gone(process)
        print(f"kill -9 after {len(text)} characters of an answer; the client got {type(e).__name__}: {e}")
    else:
        sys.exit("the answer was complete before the server could be killed")


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])

"""`semspec deploy` against a real Prefect server, used over its REST API as its UI does."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import httpx
import pytest
from fake_project import make_fake, processes, ran
from project import make_project

from semspec import config, deploy, ui

pytestmark = [pytest.mark.services, pytest.mark.timeout(600)]
SEMSPEC = str(Path(sys.executable).parent / "semspec")
ENDED = {"COMPLETED", "FAILED", "CANCELLED", "CRASHED"}


class Api:
    """The requests that Prefect's UI makes."""

    def __init__(self, address: str):
        # the server closes a connection that was idle for 5 s; to use one as it is closed is an error
        self.http = httpx.Client(base_url=address, timeout=60, limits=httpx.Limits(keepalive_expiry=2))

    def post(self, path: str, body: dict) -> httpx.Response:
        answer = self.http.post(path, json=body)
        return self.post(path, body) if answer.status_code == 503 else answer  # its database was busy

    def deployment(self, name: str) -> dict:
        return self.http.get(f"/deployments/name/{name}/{name}").json()

    def submit(self, flow: str, /, **form) -> httpx.Response:
        path = f"/deployments/{self.deployment(flow)['id']}/create_flow_run"
        return self.post(path, {"parameters": {"request": form}, "state": {"type": "SCHEDULED"}})

    def start(self, flow: str, /, **form) -> str:
        answer = self.submit(flow, **form)
        assert answer.status_code == 201, answer.text
        return answer.json()["id"]

    def state(self, run: str) -> dict:
        return self.http.get(f"/flow_runs/{run}").json()["state"]

    def wait(self, run: str, until=lambda state: state["type"] in ENDED, seconds: float = 240) -> dict:
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            state = self.state(run)
            if until(state):
                return state
            time.sleep(0.2)
        raise AssertionError(f"still {state}, log {self.logs(run)}")

    def logs(self, run: str) -> list[str]:
        body = {"logs": {"flow_run_id": {"any_": [run]}}, "limit": 200}
        return [line["message"] for line in self.post("/logs/filter", body).json()]

    def artifacts(self, run: str) -> dict[str, dict]:
        body = {"artifacts": {"flow_run_id": {"any_": [run]}}}
        return {a["key"]: a for a in self.post("/artifacts/filter", body).json()}


@pytest.fixture(scope="module")
def deployed(server, tmp_path_factory):
    """(API, project) with `semspec deploy` at work; the project has fake stages and real tiny models."""
    root = tmp_path_factory.mktemp("deployed")
    make_fake(root)
    make_project(root, "bench.methods=[target, draft]")
    with (root / "deploy.log").open("w") as log:
        env = os.environ | {"PREFECT_API_URL": server}
        process = subprocess.Popen([SEMSPEC, "deploy", "--port", "0"], cwd=root, env=env, stdout=log, stderr=log)
    api = Api(server)
    try:
        deadline = time.monotonic() + 300
        while not all("id" in api.deployment(n) for n in ("pipeline", "bench")) and time.monotonic() < deadline:
            assert process.poll() is None, (root / "deploy.log").read_text()
            time.sleep(0.3)
        yield api, root
    finally:
        process.terminate()
        process.wait(60)


def test_forms_have_the_settings_bounds_choices_and_descriptions(deployed):
    """The deployments' forms say what the settings say, and a value out of bounds is refused with one line."""
    api, _ = deployed
    schema = api.deployment("pipeline")["parameter_openapi_schema"]["definitions"]
    n = schema["SampleForm"]["properties"]["n"]
    assert (n["type"], n["minimum"], n["maximum"]) == ("integer", 2, 10_000)
    assert n["description"] == "Samples per context and model. (2 to 10,000)" and "default" not in n
    assert schema["DecideForm"]["properties"]["rule"]["enum"] == ["ratio", "joint", "p"]
    names = list(api.deployment("bench")["parameter_openapi_schema"]["definitions"]["Request"]["properties"])
    assert names == ["name", "seed", "bench", "decide", "exact", "baselines", "scale", "overrides"]
    refused = api.submit("pipeline", seed=-1)
    assert refused.status_code == 409 and "-1 is less than the minimum of 0" in refused.json()["detail"]


def test_a_run_from_the_form_shows_logs_progress_table_and_report(deployed):
    """The form's values reach params.yaml; the log is live; the artifacts are there and the report's link works."""
    api, root = deployed
    ran(root)
    run = api.start("pipeline", profile="current", overrides=[], seed=5)
    assert api.wait(run)["type"] == "COMPLETED", api.logs(run)
    assert ran(root) == ["models", "bench", "report"] and config.load(root).seed == 5
    log = api.logs(run)
    assert "params.yaml: seed changed" in log and "working on bench" in log
    assert not any("Traceback" in line for line in log)
    shown = api.artifacts(run)
    assert shown["progress"]["data"] == 100 and shown["progress"]["description"] == "done"
    assert json.loads(shown["comparison"]["data"])[0]["Pass@1"] == "50% [10, 90]"
    link = shown["report"]["description"].removeprefix("The report: ")
    assert urllib.request.urlopen(link).read() == b"report 5"


@pytest.mark.parametrize("seed", [4, 7])
def test_cancelling_ends_all_processes_within_five_seconds(deployed, seed):
    """Also a stage that ignores SIGTERM (7); no output is left half-written, and DVC can go on."""
    api, root = deployed
    run = api.start("pipeline", seed=seed)
    api.wait(run, until=lambda state: "asleep" in api.logs(run))  # while it runs: the log is live
    assert processes(root, "stage.py") and processes(root, "dvc")
    start = time.monotonic()
    api.post(f"/flow_runs/{run}/set_state", {"state": {"type": "CANCELLING"}})
    while processes(root, "stage.py") or processes(root, "repro"):
        assert time.monotonic() - start < 5, "still running"
        time.sleep(0.05)
    assert api.wait(run)["type"] == "CANCELLED"
    assert not (root / "results/bench/summary.json").exists()
    assert not list((root / "results").rglob("*.tmp*"))


def test_cancelling_ends_all_parts_for_good(deployed):
    """Parts run in threads that a signal does not reach: they end too, and are not tried again."""
    api, root = deployed
    run = api.start("bench", name="long", bench={"limit": 2000}, scale={"workers": 2})
    api.wait(run, until=lambda state: len(list((root / "results/long").glob("*.partial.*"))) == 2)
    assert len(processes(root, "--part")) == 2
    start = time.monotonic()
    api.post(f"/flow_runs/{run}/set_state", {"state": {"type": "CANCELLING"}})
    while processes(root, "--part"):
        assert time.monotonic() - start < 5, "still running"
        time.sleep(0.05)
    assert api.wait(run)["type"] == "CANCELLED"
    assert not processes(root, "--part") and not (root / "results/long/results.jsonl").exists()


def test_retrying_goes_on_where_it_failed(deployed):
    """Retry from the UI runs the failed stage and those behind it; a bug is one line, and no traceback of ours."""
    api, root = deployed
    run = api.start("pipeline", seed=6)
    state = api.wait(run)
    assert state["type"] == "FAILED" and state["message"] == "stage 'bench' failed (exit code 1)"
    assert ran(root)[-1] == "bench"
    again = {"type": "SCHEDULED", "name": "AwaitingRetry", "message": "Retry from the Prefect UI"}
    assert api.post(f"/flow_runs/{run}/set_state", {"state": again}).json()["status"] == "ACCEPT"
    assert api.wait(run, until=lambda state: state["type"] == "COMPLETED")
    assert ran(root) == ["bench", "report"]


def test_a_pipeline_in_two_parts_makes_the_parts_before_the_stage(deployed):
    """The parts are task runs of a flow run of their own, and leave their rows for the stage."""
    api, root = deployed
    run = api.start("pipeline", seed=9, scale={"workers": 2})
    assert api.wait(run)["type"] == "COMPLETED", api.logs(run)
    config.apply(root, overrides=["scale.workers=1"])
    left = sorted(p.name for p in (root / "results/bench").glob("*.partial.*"))
    assert left == ["results.partial.1-2.jsonl", "results.partial.2-2.jsonl"]
    body = {"flow_runs": {"parent_flow_run_id": {"any_": [run]}}}
    assert [r["name"] for r in api.post("/flow_runs/filter", body).json()] == ["bench in 2 parts"]


def test_a_mistake_in_the_form_is_one_line_and_changes_nothing(deployed):
    """A data set that does not exist, and a folder that is not for one's own runs."""
    api, root = deployed
    before = (root / "params.yaml").read_bytes()
    wrong = [
        ("pipeline", {"bench": {"dataset": "nope"}}, "unknown dataset 'nope'"),
        ("bench", {"name": "report"}, "not for"),
    ]
    for name, form, says in wrong:
        run = api.start(name, **form)
        state = api.wait(run)
        assert state["type"] == "FAILED" and says in state["message"] and "\n" not in state["message"]
        assert not any("Traceback" in line for line in api.logs(run))
    assert (root / "params.yaml").read_bytes() == before


def test_a_bench_from_the_form_in_two_parts_equals_one_in_one(deployed):
    """A bench of two parts leaves its own folder, the same graded bytes as one process, and params.yaml alone."""
    api, root = deployed
    before = (root / "params.yaml").read_bytes()
    run = api.start("bench", name="mine", bench={"limit": 3}, scale={"workers": 2})
    assert api.wait(run)["type"] == "COMPLETED", api.logs(run)
    alone = [SEMSPEC, "bench", "--limit", "3", "--out", "results/alone"]
    subprocess.run(alone, cwd=root, check=True, capture_output=True, timeout=300)
    mine = root / "results/mine"
    assert (mine / "graded.jsonl").read_bytes() == (root / "results/alone/graded.jsonl").read_bytes()
    assert not list(mine.glob("results.partial*")) and (mine / "report/index.html").exists()
    assert len(json.loads(api.artifacts(run)["comparison"]["data"])) == 2
    assert (root / "params.yaml").read_bytes() == before


def test_without_a_server_one_line_says_what_to_start(tmp_path):
    """No server: exit code 2 and one line."""
    make_fake(tmp_path)
    done = subprocess.run(
        [SEMSPEC, "deploy"], cwd=tmp_path, capture_output=True, text=True, timeout=120,
        env=os.environ | {"PREFECT_API_URL": "http://127.0.0.1:9/api"}, check=False,
    )  # fmt: skip
    assert done.returncode == 2 and len(done.stderr.strip().splitlines()) == 1
    assert "no Prefect server answers at http://127.0.0.1:9/api" in done.stderr


def test_a_server_that_is_gone_ends_all_with_one_line(monkeypatch, capsys):
    """Not for a moment's absence; else the runs would go on without anybody who can end them."""
    looks, left = iter([True, False, True] + [False] * 50), []
    monkeypatch.setattr(deploy, "answers", lambda api: next(looks))
    monkeypatch.setattr(deploy, "LOOK_S", 0.02)
    monkeypatch.setattr(deploy, "PATIENCE_S", 0.1)
    monkeypatch.setattr(deploy, "leave", lambda says, code: left.append((says, code)))
    deploy.watch("http://127.0.0.1:9/api")
    assert left == [(left[0][0], 1)] and "is gone; start it" in left[0][0] and len(list(looks)) < 50


def test_a_run_that_nobody_works_at_is_crashed_at_the_next_start(deployed, monkeypatch, server):
    """Those that began in this folder and are not over; a run of another folder, or a deleted one, is left alone."""
    api, root = deployed
    monkeypatch.setenv("PREFECT_API_URL", server)
    runs = {name: api.start("pipeline") for name in ("mine", "theirs", "waits")}
    for name, run in runs.items():
        api.wait(run)
        state = {"type": "SCHEDULED", "state_details": {"scheduled_time": "2100-01-01T00:00:00Z"}}
        api.post(
            f"/flow_runs/{run}/set_state", {"state": state if name == "waits" else {"type": "RUNNING"}, "force": True}
        )
    begun = root / ui.BEGUN
    assert set(begun.read_text().split()) >= set(runs.values()), "flows note themselves"
    begun.write_text(f"{runs['mine']}\n{runs['waits']}\n{'0' * 8}-0000-0000-0000-{'0' * 12}\n")
    assert ui.lost(root) == 1 and not begun.exists()
    states = {name: api.state(run)["type"] for name, run in runs.items()}
    assert states == {"mine": "CRASHED", "theirs": "RUNNING", "waits": "SCHEDULED"}
    for name in ("theirs", "waits"):
        api.post(f"/flow_runs/{runs[name]}/set_state", {"state": {"type": "CANCELLED"}, "force": True})

"""The pipeline: the graph in dvc.yaml, the flow file, and real DVC and Prefect with small fake stages."""

import ast
import json
import os
import shutil
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest
from fake_project import DVC_YAML, alive, make_fake, processes, ran
from filelock import FileLock
from ruamel.yaml import YAML

from semspec import config, pipeline, process, schema
from semspec.errors import UserError

pytestmark = pytest.mark.timeout(600)
ROOT = Path(__file__).resolve().parents[2]
ORDER = ["models", "entailment", "contexts", "sample", "cluster", "train", "bench", "truth", "report"]


def stages() -> dict:
    return YAML(typ="safe").load(ROOT / "dvc.yaml")["stages"]


def outs(stage: dict) -> list[str]:
    return [*stage.get("outs", []), *stage.get("metrics", [])]


def test_graph_runs_in_the_documented_order():
    """The order that follows from files is the one the docs tell, and each stage is one plain command."""
    assert list(pipeline.graph(ROOT)) == ORDER
    assert all(stage["cmd"] == f"semspec stage {name}" for name, stage in stages().items())


def test_every_dependency_is_written_by_an_earlier_stage():
    """No stage reads a file that no earlier stage writes, and nothing is machine-specific."""
    written: set[str] = set()
    for name in ORDER:
        stage = stages()[name]
        assert set(stage.get("deps", [])) <= written, name
        written |= set(outs(stage))
    assert not any(path.startswith(("/", "..", "~")) for path in written)


def test_every_parameter_exists_in_the_settings():
    """A parameter that dvc.yaml watches is one that the settings have, and none is missed but labels."""
    names = config.load(ROOT / "tests/defaults").model_dump()
    watched = {p for stage in stages().values() for p in stage["params"]}
    for dotted in watched:
        value = names
        for part in dotted.split("."):
            value = value[part]
    assert {p.partition(".")[0] for p in watched} == set(names) - schema.ASIDE


def test_what_an_engine_changes_is_watched():
    """`models` fetches weights, or leaves them to a server; `contexts` are the target's, however it is run."""
    engine = {f"engine.{name}" for name in schema.Engine.model_fields}
    assert {"engine.kind", "engine.draft", "engine.target"} <= set(stages()["models"]["params"])
    assert engine - {"engine.draft"} <= set(stages()["contexts"]["params"])
    assert "engine" in stages()["sample"]["params"] and "engine" in stages()["bench"]["params"]


def test_stages_of_the_code_are_the_stages_of_the_graph():
    """`semspec stage NAME` knows exactly the stages of dvc.yaml."""
    from semspec.stages import STAGES

    assert list(STAGES) == ORDER


def test_ignored_folders_hold_no_output():
    """DVC and git leave services' files alone, and no output of a stage lies in what DVC ignores."""
    lines = (ROOT / ".dvcignore").read_text().splitlines()
    ignored = [line.rstrip("/") for line in lines if line and not line.startswith("#")]
    assert {"mlruns", "mlflow.db*", ".prefect", "data/samples/shards", "data/cache"} <= set(ignored)
    assert not any(o.startswith(i) for s in stages().values() for o in outs(s) for i in ignored)


@pytest.mark.parametrize("path", sorted((ROOT / "flows").glob("*.py")), ids=lambda p: p.name)
def test_flow_files_keep_real_annotations(path):
    """`from __future__ import annotations` in a flow file breaks runs started from Prefect's UI."""
    imports = [n for n in ast.walk(ast.parse(path.read_text())) if isinstance(n, ast.ImportFrom)]
    assert not any(n.module == "__future__" for n in imports)


FLOWS = """
from pathlib import Path
from semspec import pipeline
from semspec.errors import UserError
for name in ("pipeline", "bench", "tune"):
    flow = pipeline.load_flow(Path("."), name)
    try:
        flow.alone(flow.Request())
    except UserError as e:
        print(name, e, sep=": ")
    if name == "bench":
        try:
            flow.compare(flow.Request(name="published"))
        except UserError as e:
            print(e)
"""


def test_every_flow_leaves_what_is_anothers(tmp_path):
    """A run from the UI and one in a terminal exclude each other, whichever they are; published results stay."""
    shutil.copytree(ROOT / "flows", tmp_path / "flows")
    (tmp_path / ".dvc/tmp").mkdir(parents=True)
    with FileLock(tmp_path / ".dvc/tmp/semspec.lock"):
        done = subprocess.run(
            [sys.executable, "-c", FLOWS], cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False
        )
    busy = "another run is working here; wait for it, or end it where it was started"
    refused = "results/published is not for runs of one's own; choose another name"
    assert done.stdout.splitlines() == [f"pipeline: {busy}", f"bench: {busy}", refused, f"tune: {busy}"], done.stderr


def test_importing_the_library_loads_nothing_heavy():
    """`semspec.pipeline` is imported by the command line: no prefect, mlflow, dvc or torch."""
    code = "import sys, semspec.pipeline, semspec.tracking; print(sorted(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert not set(ast.literal_eval(done.stdout)) & {
        "prefect",
        "mlflow",
        "dvc",
        "torch",
        "sklearn",
        "transformers",
    }


def test_settings_of_the_user_stay(monkeypatch, tmp_path):
    """`quiet` fills in what is unset, and asks for no server of its own when the user names one."""
    for name in list(os.environ):
        if name.startswith(("PREFECT_", "MLFLOW_")):
            monkeypatch.delenv(name)
    monkeypatch.setattr(os, "environ", dict(os.environ) | {"PREFECT_API_URL": "http://x/api", "DO_NOT_TRACK": "1"})
    pipeline.quiet(tmp_path)
    assert os.environ["PREFECT_HOME"] == str(tmp_path / ".prefect") and os.environ["DO_NOT_TRACK"] == "1"
    assert "PREFECT_SERVER_ALLOW_EPHEMERAL_MODE" not in os.environ


def run(code: str, **options) -> tuple[int, list[str]]:
    lines: list[str] = []
    command = [sys.executable, "-u", "-c", textwrap.dedent(code)]
    return process.run_group(command, Path.cwd(), os.environ, log=lines.append, **options), lines


def test_output_is_live_and_bars_are_no_log_lines(capsys):
    """The terminal gets all; the log gets lines, not a bar's many states; hidden lines reach neither."""
    code, lines = run(
        r"""
        import sys
        print("one")
        for i in range(3): sys.stderr.write(f"\r{i}/3")
        sys.stderr.write("\n")
        print("secret"); print("last", end="")
        sys.exit(3)
        """,
        keep=lambda line: "secret" not in line,
    )
    err = capsys.readouterr().err
    assert code == 3 and lines == ["one"]
    assert "0/3\r1/3\r2/3\n" in err and "secret" not in err and err.endswith("last")


def test_a_process_left_behind_does_not_hold_the_run_up():
    """The run goes on when the command ends, though a child of it keeps the output open."""
    start = time.monotonic()
    code, lines = run("import subprocess; subprocess.Popen(['sleep', '30']); print('done')", live=False)
    assert code == 0 and lines == ["done"] and time.monotonic() - start < 20


def test_an_exception_ends_grandchildren_that_ignore_sigterm(tmp_path, monkeypatch):
    """Cancelling kills the whole process group, stubborn members too."""
    monkeypatch.setattr(process, "GRACE_S", 0.5)
    child = "import signal,time; signal.signal(15, signal.SIG_IGN); print('up', flush=True); time.sleep(60)"
    code = f"""
    import subprocess, sys
    p = subprocess.Popen([sys.executable, "-c", {child!r}])
    print("pid", p.pid, flush=True); p.wait()
    """
    seen: list[str] = []

    def stop(line):
        seen.append(line)
        if len(seen) == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        command = [sys.executable, "-c", textwrap.dedent(code)]
        process.run_group(command, tmp_path, os.environ, log=stop, live=False)
    pid = int(next(line for line in seen if line.startswith("pid")).split()[1])
    assert not alive(pid)


def test_what_a_killed_run_left_is_ended(tmp_path, monkeypatch):
    """Its server, known by the run's mark; not one of another folder, of a run at work, or that the user started."""
    sleeps = [sys.executable, "-c", "import time; time.sleep(60)", "a.server"]
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    servers = []
    for home, run in (("theirs", gone.pid), ("mine", os.getpid()), ("mine", ""), ("mine", gone.pid)):
        marks = {"PREFECT_HOME": str(tmp_path / home), process.RUN: str(run)}
        servers.append(subprocess.Popen(sleeps, env=os.environ | marks))
    monkeypatch.setenv("PREFECT_HOME", str(tmp_path / "mine"))
    process.end_orphans("a.server", "PREFECT_HOME")
    try:
        assert servers[-1].wait(20) == -signal.SIGTERM
        assert [server.poll() for server in servers[:-1]] == [None] * 3
    finally:
        for server in servers:
            server.kill()


def test_a_command_ends_with_who_started_it(tmp_path):
    """Killed without a chance to end what it runs: a `semspec` process below it, through others, ends by itself."""
    below = "from semspec.process import end_with_parent; import time; end_with_parent(); print('up'); time.sleep(60)"
    through = f"import subprocess, sys; print(subprocess.Popen([sys.executable, '-uc', {below!r}]).pid); sys.exit()"
    code = f"""
    from pathlib import Path
    import sys, time
    from semspec.commands import run_command
    run_command([sys.executable, "-uc", {through!r}], Path("."), log=lambda line: print(line, flush=True), live=False)
    time.sleep(60)
    """
    with subprocess.Popen([sys.executable, "-c", textwrap.dedent(code)], stdout=subprocess.PIPE, text=True) as starter:
        pid = int(starter.stdout.readline())
        time.sleep(1)
        assert alive(pid)
        starter.kill()
    deadline = time.monotonic() + 20
    while alive(pid) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not alive(pid)


# -- a small project with real DVC ----------------------------------------------------------------------


@pytest.fixture
def project(tmp_path):
    """A git and DVC project with the real flow and fake stages."""
    return make_fake(tmp_path)


def test_stale_names_what_follows_from_a_change(project):
    """All, then nothing, then a changed parameter's stage and those behind it; a bug is no user error."""
    assert pipeline.stale(project) == ["models", "bench", "report"]
    for name in ("models", "bench", "report"):
        pipeline.run_stage(project, name, live=False)
    assert pipeline.stale(project) == []
    config.apply(project, overrides=["seed=3"])
    assert pipeline.stale(project) == ["bench", "report"]
    assert not pipeline.is_cached(project, "bench")
    config.apply(project, overrides=["seed=0"])
    assert pipeline.is_cached(project, "bench")
    config.apply(project, overrides=["seed=3"])
    with pytest.raises(pipeline.StageFailed, match=r"stage 'bench' failed \(exit code 1\)"):
        pipeline.run_stage(project, "bench", live=False)


def test_outside_a_clone_is_a_mistake_of_the_users(tmp_path):
    """Without the project's files, or without git, one line says what to do."""
    shutil.copy(ROOT / "tests/defaults/params.yaml", tmp_path)
    with pytest.raises(UserError, match="cloned repository"):
        pipeline.run_pipeline(tmp_path)
    (tmp_path / ".dvc").mkdir()
    (tmp_path / "dvc.yaml").write_text(DVC_YAML)
    with pytest.raises(UserError, match="no_scm"):
        pipeline.run_pipeline(tmp_path)


def test_ctrl_c_is_one_line_whatever_prefect_raises(tmp_path, monkeypatch):
    """Ctrl-C ends Prefect's server with us; its complaint about that is not what the user sees or waits for."""
    left = []

    def flow():
        try:
            pipeline.run_stage(tmp_path, "bench")
        except BaseException:
            raise ConnectionError("server gone") from None

    def interrupted(*args, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr(pipeline, "run_command", interrupted)
    monkeypatch.setattr(pipeline, "leave", lambda: left.append(1))
    monkeypatch.setattr(process, "leave", lambda: left.append(2))  # what a timer would do that is not cancelled
    try:
        assert pipeline.run_flow(flow) == 130 and left == [1]
        assert all(timer.finished.is_set() for timer in process.cancelled)
        with pytest.raises(InterruptedError):  # in a thread that would try the stage again
            run("print('again')")
    finally:
        process.ending.clear()


def test_an_unreachable_server_is_one_line(project):
    """A wrong PREFECT_API_URL is the user's mistake, told in one line that names it."""
    done = semspec_run(project, PREFECT_API_URL="http://127.0.0.1:9/api")
    assert done.returncode == 2 and ran(project) == []
    assert "error: no Prefect server answers at http://127.0.0.1:9/api" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_broken_graph_is_one_line(project):
    """An invalid dvc.yaml gives one readable line, no traceback."""
    (project / "dvc.yaml").write_text("stages: [")
    with pytest.raises(UserError) as caught:
        pipeline.stale(project)
    assert "dvc.yaml" in str(caught.value) and "\n" not in str(caught.value)


def test_stages_that_wait_for_each_other_are_one_line(tmp_path):
    """No order is made up for them."""
    stages = "stages: {one: {deps: [b], outs: [a]}, two: {deps: [a], outs: [b]}, free: {outs: [c]}}"
    (tmp_path / "dvc.yaml").write_text(stages)
    with pytest.raises(UserError, match=r"dvc\.yaml has a cycle; restore it"):
        pipeline.graph(tmp_path)


def test_another_dvc_at_work_is_one_line(tmp_path, monkeypatch):
    """Said in place of DVC's own paragraph."""
    from dvc.lock import FAILED_TO_LOCK_MESSAGE

    said = f"ERROR: {FAILED_TO_LOCK_MESSAGE}\n"
    failed = subprocess.CompletedProcess([], 255, stdout="", stderr=said)
    monkeypatch.setattr(subprocess, "run", lambda *args, **more: failed)
    with pytest.raises(UserError, match=r"^another dvc command is working here; wait for it and run again$"):
        pipeline.stale(tmp_path)


MAIN = """
import sys
from pathlib import Path
from semspec import tracking
from semspec.errors import UserError
from semspec.pipeline import run_pipeline
tracking.log_run = lambda root, settings: print("tracked") # MLflow has tests of its own
try:
    sys.exit(run_pipeline(Path.cwd(), None, sys.argv[1:]))
except UserError as e:
    sys.exit(print(f"error: {e}", file=sys.stderr) or 2)
"""


def semspec_run(project: Path, *overrides: str, **env: str) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, "-c", MAIN, *overrides], cwd=project, env=os.environ | env,
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip


def test_run_from_nothing_to_the_table_and_again(project, server):
    """All stages run live under a flow and the table is printed; a second run starts no flow."""
    first = semspec_run(project, PREFECT_API_URL=server)
    assert first.returncode == 0, first.stderr
    assert ran(project) == ["models", "bench", "report"]
    assert "working on bench" in first.stderr and "tracked" in first.stdout
    assert "semantic  50% [10, 90]" in first.stdout and "Traceback" not in first.stderr
    assert "Running stage" not in first.stderr and "git add" not in first.stderr
    (project / "mlflow.db").touch()  # stands for what the replaced tracking would have left
    second = semspec_run(project, PREFECT_API_URL="http://127.0.0.1:9/api")  # would fail if it were asked
    assert second.returncode == 0 and ran(project) == [] and "semantic" in second.stdout

    mistake = semspec_run(project, "seed=2", PREFECT_API_URL=server)
    assert mistake.returncode == 2 and ran(project) == ["bench"]
    assert mistake.stderr.strip().splitlines()[-1] == "error: no dataset 'x'; see the docs"
    assert mistake.stderr.count("no dataset") == 1 and "Traceback" not in mistake.stderr


def test_cancelling_leaves_no_process(project, server):
    """SIGTERM during a stage (how Prefect cancels) ends the stage; a run meanwhile is told who is at work."""
    flow = subprocess.Popen(
        [sys.executable, "-c", MAIN, "seed=4"], cwd=project, env=os.environ | {"PREFECT_API_URL": server},
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip
    try:
        for line in flow.stderr:
            if "asleep" in line:
                break
        stage = processes(project.resolve(), "stage.py")
        assert stage
        with pytest.raises(UserError, match=r"another run .*; wait for it, or end it with `kill -TERM"):
            pipeline.stale(project)
        params = (project / "params.yaml").read_bytes()
        with pytest.raises(UserError, match="another run is working here"), pipeline.alone(project):
            raise AssertionError("it is not alone")
        refused = semspec_run(project, "seed=5", PREFECT_API_URL=server)
        assert refused.returncode == 2 and "another run" in refused.stderr
        assert (project / "params.yaml").read_bytes() == params
        flow.send_signal(signal.SIGTERM)
        _, said = flow.communicate(timeout=20)
        assert flow.returncode == 130 and said.splitlines()[-1].startswith("cancelled; the same command goes on")
        assert not any(alive(pid) for pid in stage)
    finally:
        if flow.poll() is None:
            flow.terminate()
            flow.wait(30)


def test_an_interruption_is_known_in_other_clothes():
    """Ctrl-C in the midst of a library comes out as that library's error."""
    try:
        try:
            raise KeyboardInterrupt
        except KeyboardInterrupt:
            raise ValueError("can't be serialized")  # noqa: B904
    except ValueError as e:
        assert process.interrupted(e)
    assert process.interrupted(RuntimeError("Error calling function `f`: KeyboardInterrupt: "))
    assert not process.interrupted(ValueError("another"))


def test_table_has_a_dash_for_what_is_missing(tmp_path):
    """Missing values become dashes, and no summary makes an empty table."""
    assert pipeline.results_table(tmp_path) == ""
    path = tmp_path / "results/bench/summary.json"
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps({"methods": {"draft": {"pass_at_1": 0.25, "speedup": None, "n": 4}}}))
    (row,) = pipeline.comparison(path)
    torn = tmp_path / "torn.json"
    torn.write_text("[]")
    assert pipeline.comparison(torn) == []
    assert row["method"] == "draft" and row["Pass@1"] == "25%" and row["Speed-up"] == "–" and row["Problems"] == "4"
    assert pipeline.results_table(tmp_path).splitlines()[1].split() == ["draft", "25%", "–", "–", "–", "–", "–", "4"]

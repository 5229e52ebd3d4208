"""What is served: a registered version, a bundle's folder, the project; and models that are not the bundle's."""

from __future__ import annotations

import shutil

import numpy as np
import pytest
from project import REPO, make_project

from semspec import config, files
from semspec.cli import main
from semspec.errors import UserError
from semspec.models import describe
from semspec.probe.calibration import Calibration
from semspec.probe.probe import Probe
from semspec.serving import bundle, command
from semspec.tracking import bundle as bundles
from semspec.tracking import mlflow_log, registry

pytestmark = pytest.mark.timeout(300)


def save_probe(folder, role: str) -> None:
    """Linear on two of three layers of 64."""
    arrays = {
        "bias": np.array([0.5]),
        "center": np.zeros((2, 64), np.float32),
        "weight": np.full((2, 64), 0.01, np.float32),
    }
    calibration = Calibration("none", 0.01, np.zeros(0), np.zeros(0))
    trained_on = {"weights": "fp32", "split": "blank_line"}
    Probe(role, "linear", [0, 2], (3, 64), False, arrays, calibration, {"trained_on": trained_on}).save(folder / role)


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    """A project with tiny models, probes, and a bundle of γ 3 and threshold .4 beside it."""
    root = tmp_path_factory.mktemp("served") / "project"
    chosen = make_project(root, "decide.rule=ratio", "decide.threshold=0.4", "bench.gamma=3")
    for role in ("draft", "target"):
        save_probe(root / "data/probes", role)
        files.write_json(root / f"data/models/{role}.json", describe(getattr(chosen.models, role)))
    bundles.make_bundle(root, chosen, root.parent / "bundle")
    return root, chosen


def flip_last_byte(path) -> None:
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)


def folders(chosen) -> list[str]:
    return [f"models.{r}={getattr(chosen.models, r)}" for r in ("draft", "target")]


def test_a_bundle_alone_says_how_to_decode(project, tmp_path):
    """In a folder without params.yaml: rule, γ, prompt and probes are the bundle's; the command line wins."""
    root, chosen = project
    served = bundle.read(str(root.parent / "bundle"), tmp_path, [*folders(chosen), "bench.gamma=2"])
    got = served.settings
    assert (got.decide, got.bench.gamma, got.text) == (chosen.decide, 2, chosen.text)
    assert got.engine.weights == "fp32" and served.probes["target"].layers == [0, 2]
    assert served.name == registry.model_name(chosen)


def test_params_yaml_finds_the_folders_of_the_models(project):
    """A bundle knows a folder's name only; params.yaml says where it is."""
    root, chosen = project
    assert bundle.read(str(root.parent / "bundle"), root).settings.models.target == chosen.models.target
    with pytest.raises(UserError, match=r"the bundle's draft can't be had.*models\.draft=FOLDER"):
        bundle.read(str(root.parent / "bundle"), root.parent)


def test_another_model_is_named(project, tmp_path):
    """One changed byte in the target's weights, or a missing file: the line says which model and file."""
    root, chosen = project
    other = tmp_path / "target"
    shutil.copytree(chosen.models.target, other)
    flip_last_byte(other / "model.safetensors")
    with pytest.raises(UserError, match=r"the target .*is not the bundle's: model\.safetensors has SHA-256"):
        bundle.read(str(root.parent / "bundle"), root, [f"models.target={other}"])


def test_a_spoiled_probe_is_named(project, tmp_path):
    """A flipped byte that would still load, a file cut short, one that is gone: the bundle and the file are named."""
    root, _ = project
    spoiled = tmp_path / "bundle"
    for spoil in (flip_last_byte, lambda p: p.write_bytes(p.read_bytes()[:-9]), lambda p: p.unlink()):
        shutil.copytree(root.parent / "bundle", spoiled, dirs_exist_ok=True)
        spoil(spoiled / "probes/target/probe.safetensors")
        with pytest.raises(UserError, match=r"bundle is spoiled: its probes/target/probe\.safetensors"):
            bundle.read(str(spoiled), root)


def test_another_number_format_is_refused(project):
    """A probe of fp32 states is not put on bf16 states."""
    root, chosen = project
    with pytest.raises(UserError, match="number format"):
        bundle.read(str(root.parent / "bundle"), root, [*folders(chosen), "engine.weights=bf16"])


def test_the_project_itself(project, tmp_path):
    """Without a reference: data/probes and params.yaml; without probes there is still something to serve."""
    root, _ = project
    assert set(bundle.read(None, root).probes) == {"draft", "target"}
    shutil.copy(root / "params.yaml", tmp_path)
    assert bundle.read(None, tmp_path).probes == {}


def test_a_registered_version(project, monkeypatch):
    """By alias and by version, with the name of the registered model; an unknown one is one line."""
    root, chosen = project
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    client = mlflow_log.client(root, chosen)
    run = client.create_run(mlflow_log.experiment(client, root, chosen)).info.run_id
    version = registry.Registry(root, chosen).register(run).version
    name = registry.model_name(chosen)
    client.set_registered_model_alias(name, "champion", version)
    for reference in (f"models:/{name}@champion", f"models:/{name}/{version}"):
        served = bundle.read(reference, root)
        assert served.name == name and served.settings.bench.gamma == 3 and set(served.probes) == {"draft", "target"}
    for reference, words in (
        (f"models:/{name}@nobody", "can't be read"),
        ("models:/nothing/1", "can't be read"),
        ("models:/x", "write it as"),
    ):
        with pytest.raises(UserError, match=words):
            bundle.read(reference, root)
    weights = next((root / "mlruns").rglob("bundle/probes/target/probe.safetensors"))
    flip_last_byte(weights)
    with pytest.raises(UserError, match="not those that were registered"):
        bundle.read(f"models:/{name}@champion", root)
    shutil.rmtree(root / "mlruns")
    with pytest.raises(UserError, match=rf"the files of version {version} of {name} can't be found"):
        bundle.read(f"models:/{name}@champion", root)


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["--model", "nowhere"], "no bundle.json"),
        (["--host", "0.0.0.0", "--method", "target"], "API key"),
        (["--port", "99999"], "serve.port"),
        ([], "no trained probe"),
        (["--set", "serve.que=1"], "did you mean 'queue'"),
    ],
)
def test_mistakes_are_one_line(project, tmp_path, monkeypatch, capsys, args, words):
    """Exit code 2 and a sentence that says what to do."""
    shutil.copy(project[0] / "params.yaml", tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("SEMSPEC_API_KEY", raising=False)
    assert main(["serve", *args]) == 2
    lines = capsys.readouterr().err.strip().splitlines()
    assert len(lines) == 1 and lines[0].startswith("error: ") and words in lines[0], lines


def test_reading_a_registry_makes_none(project, tmp_path, monkeypatch):
    """Where nothing was ever registered, it is said, and no empty database is left."""
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    shutil.copy(project[0] / "params.yaml", tmp_path)
    with pytest.raises(UserError, match=r"no registry in .* yet"):
        bundle.read("models:/x@champion", tmp_path)
    assert not (tmp_path / "mlflow.db").exists()


def test_two_servers_that_start_at_once(tmp_path):
    """The second is told so while the first still loads its models, and the port is free again afterwards."""
    first = command._bind("127.0.0.1", 0)
    port = first.getsockname()[1]
    with pytest.raises(UserError, match=f"port {port} can't be used"):
        command._bind("127.0.0.1", port)
    first.close()
    command._bind("127.0.0.1", port).close()


def test_a_port_in_use_is_one_line(project, tmp_path, monkeypatch, capsys):
    """Said before any model is loaded."""
    import socket

    shutil.copy(project[0] / "params.yaml", tmp_path)
    monkeypatch.chdir(tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        assert main(["serve", "--method", "target", "--port", str(taken.getsockname()[1])]) == 2
    assert "choose another with --port" in capsys.readouterr().err


def test_files_of_models_that_are_one_file_or_a_servers(tmp_path, monkeypatch):
    """A GGUF file is a model by itself; where an SGLang server has the weights, they are neither asked for nor read."""
    (tmp_path / "x.gguf").write_bytes(b"weights")
    found = {role: {"files": {"x.gguf": files.sha256(tmp_path / "x.gguf")}} for role in ("draft", "target")}
    chosen, asked = config.load(REPO / "tests/defaults"), []
    monkeypatch.setattr(bundle, "ensure", lambda *args, **more: asked.append(more) or tmp_path / "x.gguf")
    bundle.check_models({"models": found}, chosen)
    found["target"]["files"]["model.safetensors"] = "0" * 64
    with pytest.raises(UserError, match=r"model\.safetensors has SHA-256 missing"):
        bundle.check_models({"models": found}, chosen)
    asked.clear()
    engine = chosen.engine.model_copy(update={"kind": "sglang"})
    bundle.check_models({"models": found}, chosen.model_copy(update={"engine": engine}))
    assert asked == [{"weights": False}] * 2

"""Mistakes that are known before any work: one line, and params.yaml as it was."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest

from semspec import cli, config, schema
from semspec.errors import UserError
from semspec.preflight import check

REPO = Path(__file__).resolve().parents[2]


def changed(*overrides: str) -> schema.Settings:
    data = config.load(REPO / "tests/defaults").model_dump()
    for override in overrides:
        config.put(data, *config.parse_override(override))
    return config.validate(data)


def test_the_settings_as_they_are_pass(tmp_path):
    """Every profile, too, names models and data sets that exist."""
    check(config.load(REPO / "tests/defaults"))
    for profile in config.profiles():
        (tmp_path / "params.yaml").write_bytes((REPO / "tests/defaults/params.yaml").read_bytes())
        config.apply(tmp_path, profile, (), check)


@pytest.mark.parametrize(
    ("override", "says"),
    [
        ("bench.dataset=nope", "unknown dataset 'nope'"),
        ("bench.dataset=s1k", "only training questions"),
        ("contexts.dataset=aime24", "only test questions"),
        ("bench.dataset=missing.jsonl", "does not exist"),
        ("models.target=./no-such-folder", "folder './no-such-folder' does not exist"),
        ("models.target=qwen9", "unknown model 'qwen9'"),
        ("models.draft=all-minilm-l6-v2", "no language model"),
        ("models.encoder=qwen2.5-coder-0.5b-instruct", "no encoder"),
    ],
)
def test_what_cannot_work_is_said_before_anything_is_written(override, says, tmp_path):
    """The line names the mistake; the file keeps its bytes."""
    with pytest.raises(UserError, match=re.escape(says)):
        check(changed(override))
    (tmp_path / "params.yaml").write_bytes((REPO / "tests/defaults/params.yaml").read_bytes())
    with pytest.raises(UserError):
        config.apply(tmp_path, None, [override], check)
    assert (tmp_path / "params.yaml").read_bytes() == (REPO / "tests/defaults/params.yaml").read_bytes()


def test_layers_that_a_model_lacks(tmp_path):
    """Known from its config.json, where that is on this machine."""
    (tmp_path / "config.json").write_text('{"num_hidden_layers": 3}')
    (tmp_path / "model.safetensors").touch()
    mine = f"models.target={tmp_path}"
    check(changed(mine, "train.layers={draft: [0], target: [0, 2, -1]}"))
    with pytest.raises(UserError, match="names layer 3; the model has layers 0 to 2"):
        check(changed(mine, "train.layers={draft: [0], target: [3]}"))
    check(changed(mine, "train.layers={draft: [0], target: [3]}", "train.features=logprob"))


def test_a_folder_without_weights_is_for_a_server(tmp_path):
    """Its server has them; any other engine needs them here."""
    (tmp_path / "config.json").write_text("{}")
    check(changed(f"models.target={tmp_path}", "engine.target={kind: sglang}"))
    for engine in ("engine.target={}", "engine.draft={kind: sglang}"):
        with pytest.raises(UserError, match=r"holds no \*\.safetensors"):
            check(changed(f"models.target={tmp_path}", engine))


def test_the_papers_labels_leave_the_joint_rule_nothing_to_learn():
    """Said before hours of sampling, not by the bench after them."""
    check(changed("cluster.labels=own", "decide.rule=p"))
    rules = {"decide.rule=joint": "decide.rule: joint", "bench.variants=[semantic@rule=joint]": "semantic@rule=joint"}
    for rule, place in rules.items():
        with pytest.raises(UserError, match=f"{place} has nothing to learn from; set the rule to ratio or p"):
            check(changed("cluster.labels=own", "decide.rule=p", rule))


def test_probes_that_another_project_should_have_made(tmp_path):
    """Asked for only where a method needs them."""
    check(changed("baselines.cross_probes=nowhere"))
    for asks in ("bench.methods=[target, semantic_cross_domain]", "bench.variants=[semantic_cross_domain@gamma=2]"):
        with pytest.raises(UserError, match=r"needs baselines\.cross_probes: the data/probes of another project$"):
            check(changed(asks))
        with pytest.raises(UserError, match="nowhere holds no trained probes"):
            check(changed(asks, "baselines.cross_probes=nowhere"))
        for role in ("draft", "target"):
            (tmp_path / role).mkdir(exist_ok=True)
            (tmp_path / role / "config.json").touch()
        check(changed(asks, f"baselines.cross_probes={tmp_path}"))


@pytest.mark.parametrize(
    ("model", "says"),
    [
        ("./nowhere", "'./nowhere' does not exist"),
        ("deberta", "unknown model 'deberta'"),
        ("all-minilm-l6-v2", "tells no entailment"),
    ],
)
def test_a_wrong_entailment_model(model, says):
    """Asked for only where `cluster` takes it."""
    check(changed(f"cluster.nli_model={model}"))
    with pytest.raises(UserError, match=says):
        check(changed("cluster.entailment=nli", f"cluster.nli_model={model}"))
    check(changed("cluster.entailment=nli"))


def test_more_gpus_than_there_are(monkeypatch):
    """Parts that would see none are not begun; how many there are is asked of the variable, else of PyTorch."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,6,7")
    check(changed("scale.workers=3", "scale.gpus=1"))
    with pytest.raises(UserError, match=r"scale\.workers=2 with scale\.gpus=2 needs 4 GPUs and 3 can be seen"):
        check(changed("scale.workers=2", "scale.gpus=2"))
    check(changed("scale.workers=1", "scale.gpus=9"))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    with pytest.raises(UserError, match="and 0 can be seen"):
        check(changed("scale.workers=2", "scale.gpus=1"))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    with pytest.raises(UserError, match="needs 2048 GPUs"):
        check(changed("scale.workers=32", "scale.gpus=64"))


def test_a_runner_that_is_not_installed(monkeypatch):
    """The line says what installs it."""
    dask, find = object(), importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda n, *more: dask if n == "prefect_dask" else find(n, *more))
    check(changed("scale.runner=dask"))
    dask = None
    with pytest.raises(UserError, match=r"scale\.runner is 'dask', which is not installed; pip .*\[dask\]"):
        check(changed("scale.runner=dask"))


def test_a_draft_that_cannot_look_up(monkeypatch):
    """Said before the samples that such a bench needs are drawn, of a variant too."""
    check(changed("exact.drafting=lookup", "bench.methods=[target, semantic]"))
    for asks in (["exact.drafting=lookup", "bench.methods=[semantic]"], ["bench.variants=[semantic@drafting=lookup]"]):
        with pytest.raises(UserError, match=r"exact\.drafting: lookup needs the draft on an engine of this process"):
            check(changed("engine.draft={kind: sglang}", *asks))


def test_a_gpu_that_pytorch_does_not_see(monkeypatch):
    """Said of either model's device before its weights are fetched; an SGLang server has a device of its own."""
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    for asks, device in (("engine.device=cuda", "cuda"), ("engine.draft={device: 'cuda:1'}", "cuda:1")):
        with pytest.raises(UserError, match=f"engine.device is '{device}' but PyTorch sees no GPU"):
            check(changed(asks))
    check(changed("engine.kind=sglang", "engine.device=cuda"))
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    check(changed("engine.device=cuda"))


def test_probes_are_not_tested_on_the_questions_of_their_training(tmp_path):
    """One file, or two that share a question; methods without probes may answer it."""
    mine, other = tmp_path / "mine.jsonl", tmp_path / "other.jsonl"
    mine.write_text('{"question": "1 + 1?", "answer": "2"}\n{"question": "2 + 2?", "answer": "4"}\n')
    other.write_text('{"question": "2 +  2?", "answer": "4"}\n')
    for test, says in ((mine, str(mine)), (other, "1 questions of")):
        chosen = [f"contexts.dataset={mine}", f"bench.dataset={test}"]
        with pytest.raises(UserError, match=f"{re.escape(says)}.*two files"):
            check(changed(*chosen))
        check(changed(*chosen, "bench.methods=[target, draft]"))
    other.write_text('{"question": "3 + 3?", "answer": "6"}\n')
    check(changed(f"contexts.dataset={mine}", f"bench.dataset={other}"))


@pytest.mark.parametrize("model", ["cosine", "crossencoder"])
def test_the_context_in_front_needs_thresholds_of_its_own(model):
    """With the same words in front of both steps every similarity is high."""
    chosen = ["cluster.context=true", f"cluster.entailment={model}"]
    with pytest.raises(UserError, match=r"set cluster\.threshold and cluster\.calculated, or .* nli"):
        check(changed(*chosen))
    with pytest.raises(UserError, match=r"set cluster\.threshold"):
        check(changed(*chosen, "cluster.threshold=0.95"))
    check(changed(*chosen, "cluster.threshold=0.95", "cluster.gate=false"))
    check(changed(*chosen, "cluster.threshold=0.95", "cluster.calculated=0.9"))
    check(changed("cluster.context=true", "cluster.entailment=nli"))


def test_no_methods_is_not_the_default(tmp_path, monkeypatch, capsys):
    """An empty list is a mistake, not the list of params.yaml."""
    (tmp_path / "params.yaml").write_bytes((REPO / "tests/defaults/params.yaml").read_bytes())
    monkeypatch.chdir(tmp_path)
    assert cli.main(["bench", "--methods", ""]) == 2
    assert "bench.methods" in capsys.readouterr().err


def test_an_unknown_model_cannot_be_verified(capsys):
    """As it can't be pulled."""
    assert cli.main(["models", "verify", "qwen9"]) == 2
    assert "unknown model" in capsys.readouterr().err

"""Generated pairs of steps, the cross-encoder that is trained on them, and the stage that makes it."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from random import Random

import numpy as np
import pytest

from semspec import config, schema
from semspec.errors import UserError
from semspec.files import read_json
from semspec.semantics import crossencoder, entailment
from semspec.semantics.gate import verdict
from semspec.semantics.normalise import normalise
from semspec.semantics.pairs import CONTRADICTION, ENTAILMENT, NEUTRAL, Claim, label, pairs, say
from semspec.stages import STAGES

SUM = Claim("calculation", "total", "Tom", "eggs", "+", (5, 3, 8))
START = SUM._replace(kind="given")


@pytest.mark.parametrize(
    ("first", "second", "forward", "backward"),
    [
        ([SUM], [SUM._replace(numbers=(3, 5, 8))], ENTAILMENT, ENTAILMENT),
        ([SUM], [SUM._replace(numbers=(5, 3, 9))], CONTRADICTION, CONTRADICTION),
        ([SUM], [SUM._replace(operation="*", numbers=(5, 3, 15))], CONTRADICTION, CONTRADICTION),
        ([SUM], [SUM._replace(role="left")], NEUTRAL, NEUTRAL),
        ([SUM], [SUM._replace(kind="value")], ENTAILMENT, NEUTRAL),
        ([SUM._replace(operation="-")], [SUM._replace(operation="-", numbers=(3, 5, 8))], CONTRADICTION, CONTRADICTION),
        ([SUM], [SUM._replace(kind="plan")], NEUTRAL, NEUTRAL),
        ([SUM, START], [SUM], ENTAILMENT, NEUTRAL),
        (
            [SUM, SUM._replace(kind="given")],
            [SUM._replace(kind="given", numbers=(1, 1, 9))],
            CONTRADICTION,
            CONTRADICTION,
        ),
    ],
)
def test_labels_follow_from_the_claims(first, second, forward, backward):
    """Equal claims entail each other, more claims the fewer, another number contradicts, another thing is open."""
    assert (label(first, second), label(second, first)) == (forward, backward)


def test_what_is_generated_is_varied_and_what_is_held_out_is_not_seen():
    """Every label occurs often; the same arguments give the same pairs; no wording of one part occurs in the other."""
    train, held = pairs(2000, 0), pairs(600, 0, held=True)
    assert train == pairs(2000, 0) != pairs(2000, 1)
    for part in (train, held):
        found = Counter(p.forward for p in part) + Counter(p.backward for p in part)
        assert all(found[i] > 0.1 * len(part) for i in (CONTRADICTION, NEUTRAL, ENTAILMENT))
        assert all(normalise(p.first) != normalise(p.second) for p in part)
        assert len({p.first for p in part}) > 0.8 * len(part)
    for claim in (SUM, SUM._replace(kind="plan"), SUM._replace(kind="value")):
        rngs = [Random(i) for i in range(300)]
        known, new = ({normalise(say(claim, r, h)) for r in rngs} for h in (False, True))
        assert len(known) > 10 and len(new) > 2 and not known & new


def test_the_gate_finds_no_fault_with_what_is_the_same():
    """The mathematics of generated steps is what the claims say: the gate contradicts few of the equal pairs, and finds
    most of the false ones."""
    made = pairs(1000, 0)
    same = [verdict(p.first, p.second) == "different" for p in made if p.same]
    contradicting = [verdict(p.first, p.second) == "different" for p in made if p.forward == CONTRADICTION]
    assert np.mean(same) < 0.1 and np.mean(contradicting) > 0.8


def test_the_best_threshold():
    """It parts what can be parted, in the middle of the gap; where nothing is the same, nothing passes."""
    scores, same = np.array([0.1, 0.2, 0.6, 0.9]), np.array([False, False, True, True])
    assert crossencoder.best_threshold(scores, same) == pytest.approx(0.4)
    assert crossencoder.best_threshold(scores, ~same & False) > 0.9
    assert crossencoder.f1(scores > 0.5, same) == 1 and crossencoder.f1(scores > 0.7, same) == pytest.approx(2 / 3)


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random BERT of two layers that reads letters."""
    import torch
    from transformers import BertConfig, BertModel, BertTokenizerFast

    folder = tmp_path_factory.mktemp("encoder")
    letters = [*"abcdefghijklmnopqrstuvwxyz0123456789+-*/=.,:%()[]\\"]
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *letters, *(f"##{c}" for c in letters)]
    BertTokenizerFast(vocab={w: i for i, w in enumerate(words)}).save_pretrained(folder)
    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}
    BertModel(BertConfig(vocab_size=len(words), max_position_embeddings=256, **sizes)).save_pretrained(folder)
    return folder


def project(root: Path, encoder: Path, *overrides: str) -> schema.Settings:
    root.mkdir(exist_ok=True)
    (root / "params.yaml").write_bytes((config.PROFILES.parents[2] / "params.yaml").read_bytes())
    config.apply(root, None, [f"models.encoder={encoder}", "crossencoder.steps=4", *overrides])
    return config.load(root)


def test_the_stage_makes_a_model_that_the_cascade_reads(encoder, tmp_path, monkeypatch):
    """Two runs leave the same bytes; embeddings and first layer are the encoder's; the cascade takes the thresholds."""
    from safetensors.numpy import load_file

    monkeypatch.setattr(crossencoder, "HELD_PAIRS", 20)
    weights = []
    for run in ("one", "two"):
        settings = project(tmp_path / run, encoder, "cluster.entailment=crossencoder")
        STAGES["entailment"](settings, tmp_path / run)
        weights.append((tmp_path / run / "data/entailment/model.safetensors").read_bytes())
    assert weights[0] == weights[1]
    before = load_file(encoder / "model.safetensors")
    after = load_file(tmp_path / "one/data/entailment/model.safetensors")
    changed = {name: not np.array_equal(before[name], after[f"bert.{name}"]) for name in before}
    assert not any(c for n, c in changed.items() if n.startswith("embeddings.") or ".layer.0." in n)
    assert all(c for n, c in changed.items() if ".layer.1." in n)
    found = read_json(tmp_path / "one/data/entailment/calibration.json")
    cascade = entailment.build(settings, tmp_path / "two")
    assert (cascade.threshold, cascade.calculated) == (
        found["thresholds"]["threshold"],
        found["thresholds"]["calculated"],
    )
    (score,) = cascade.model.score([("We begin.", "Let us start.")])
    assert 0 < score < 1 and cascade.model.score([("Let us start.", "We begin.")]) == [score]


def test_a_full_disk_is_the_systems_error(encoder, tmp_path, monkeypatch):
    """Not one of safetensors', which the command line would show as a trace."""
    from safetensors import SafetensorError

    def full(*args, **options):
        raise SafetensorError("Error while serializing: I/O error: No space left on device (os error 28)")

    settings = project(tmp_path, encoder, "cluster.entailment=crossencoder")
    monkeypatch.setattr("transformers.PreTrainedModel.save_pretrained", full)
    with pytest.raises(OSError, match="No space left"):
        STAGES["entailment"](settings, tmp_path)


def test_another_backend_needs_no_training(encoder, tmp_path):
    """A small file says so, a cross-encoder of before is gone, and asking for one says what to run."""
    settings = project(tmp_path, encoder)
    (tmp_path / "data/entailment").mkdir(parents=True)
    (tmp_path / "data/entailment/model.safetensors").write_bytes(b"old")
    STAGES["entailment"](settings, tmp_path)
    assert [p.name for p in (tmp_path / "data/entailment").iterdir()] == ["calibration.json"]
    assert read_json(tmp_path / "data/entailment/calibration.json") == {}
    settings = project(tmp_path, encoder, "cluster.entailment=crossencoder")
    with pytest.raises(UserError, match=r"run .*stage entailment"):
        entailment.build(settings, tmp_path)


def test_thresholds_that_are_given_hold(encoder, tmp_path):
    """A number stands for itself, "auto" for what suits the model."""
    settings = project(tmp_path, encoder, "cluster.threshold=0.7")
    assert entailment.thresholds(settings.cluster, tmp_path) == (0.7, 0.4)
    with pytest.raises(UserError, match=r"cluster\.threshold"):
        project(tmp_path, encoder, "cluster.threshold=1.7")

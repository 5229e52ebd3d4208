"""The probe package on synthetic readings: a linear signal planted in one direction of the hidden states."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from semspec import files
from semspec.bench.command import read_probes
from semspec.config import validate
from semspec.engine.statistics import Tokens, pack, statistics, table
from semspec.errors import UserError
from semspec.probe import Joint, Probe, linear, network
from semspec.probe.conditions import check, conditions
from semspec.probe.crossvalidation import Data, make_folds, train_role
from semspec.probe.features import choose_layers, fit, n_components
from semspec.probe.novelty import fit_novelty
from semspec.probe.training import _constant, read_material, train_stage
from semspec.rules import ratio
from semspec.schema import Settings

LAYERS, HIDDEN, N = 3, 40, 10


def settings(**train: Any) -> Settings:
    base = {
        "epochs": 15,
        "patience": 4,
        "hidden_sizes": [16, 8],
        "folds": 3,
        "predictor": "linear",
        "lr": 0.01,
    } | train
    return validate(
        {
            "models": {"draft": "d", "target": "t", "encoder": "e"},
            "text": {"system": "s"},
            "sample": {"n": N},
            "train": base,
        }
    )


def world(seed: int = 0, questions: int = 24, signal: float = 3.0) -> dict[str, Any]:
    """`2 * N` samples per question; the label is a squashed linear function of the reading."""
    rng = np.random.default_rng(seed)
    n = questions * 2 * N
    latent = rng.normal(size=n)
    direction = rng.normal(size=(LAYERS, HIDDEN))
    direction[0] = 0  # layer 0 knows nothing
    hidden = rng.normal(size=(n, LAYERS, HIDDEN)) + signal * latent[:, None, None] * direction + 5
    label = np.round(N / (1 + np.exp(-2 * latent))) / N
    tokens = [Tokens(*-rng.exponential(size=(3, k)), np.zeros(k, dtype=bool)) for k in rng.integers(2, 9, n)]
    question = np.repeat([f"q{i}" for i in range(questions)], 2 * N)
    draft = np.arange(n) % (2 * N) < N
    return {
        "hidden": hidden.astype(np.float16),
        "tokens": tokens,
        "logprob": np.stack([statistics(t) for t in tokens]),
        "label": label,
        "questions": question,
        "draft": draft,
    }


def data_of(w: dict[str, Any], layers: list[int] | None = None, folds: int = 4) -> Data:
    layers = list(range(LAYERS)) if layers is None else layers
    return Data(
        "target",
        w["hidden"][:, layers],
        w["logprob"],
        w["label"],
        w["questions"],
        w["draft"],
        make_folds(w["questions"], folds, 0),
        layers,
        (LAYERS, HIDDEN),
    )


def write_world(root: Path, own: bool = False, seed: int = 0, noise: bool = False) -> None:
    w = world(seed)
    rng = np.random.default_rng(1)
    n = len(w["label"])
    author = np.where(w["draft"], "draft", "target")
    ids = [f"s{i}" for i in range(n)]
    frame = pd.DataFrame({"sample_id": ids, "context_id": [f"{q}#0" for q in w["questions"]]})
    frame = frame.assign(question_id=w["questions"], author=author)
    files.write_parquet(root / "data/samples/samples.parquet", frame)
    for role in ("draft", "target"):
        files.write_safetensors(root / f"data/samples/{role}.safetensors", {"hidden": w["hidden"], **pack(w["tokens"])})
    label = rng.permutation(w["label"]) if noise else w["label"]
    p_target, p_draft = label.copy(), np.maximum(1 - label, 1 / N)
    if own:
        p_target[w["draft"]] = np.nan
        p_draft[~w["draft"]] = np.nan
    files.write_parquet(root / "data/labels.parquet", frame.assign(p_draft=p_draft, p_target=p_target))


@pytest.mark.parametrize("predictor", ["linear", "mlp"])
def test_planted_signal_is_found(predictor: str) -> None:
    """Either predictor ranks held-out questions well when the hidden states hold the label."""
    trained = train_role(data_of(world()), settings(predictor=predictor))
    assert trained.metrics["candidates"][predictor]["draft"]["spearman"] > 0.85
    assert trained.metrics["beats_baselines"] is True
    assert trained.metrics["predictor"] == predictor


def test_shuffled_labels_score_at_chance() -> None:
    """Labels that have nothing to do with the readings give no rank correlation, and the flag says so."""
    w = world()
    w["label"] = np.random.default_rng(3).permutation(w["label"])
    trained = train_role(data_of(w), settings())
    assert abs(trained.metrics["candidates"]["linear"]["all"]["spearman"]) < 0.2
    assert trained.metrics["beats_baselines"] is False


def test_question_effect_does_not_leak() -> None:
    """Labels that are a random constant of each question cannot be predicted for an unseen question."""
    w = world(signal=0)
    rng = np.random.default_rng(2)
    number = np.unique(w["questions"], return_inverse=True)[1]
    w["label"] = rng.uniform(size=24)[number]
    w["hidden"] = (w["hidden"] + 4 * rng.normal(size=(24, LAYERS, HIDDEN))[number]).astype(np.float16)
    trained = train_role(data_of(w), settings())
    assert trained.metrics["candidates"]["linear"]["all"]["spearman"] < 0.3


def test_folds_keep_questions_whole() -> None:
    """A question lies in exactly one fold; there are never more folds than questions, nor fewer than two."""
    questions = np.repeat(["a", "b", "c", "d", "e", "f", "g"], 5)
    fold = make_folds(questions, 3, seed=1)
    assert set(fold) == {0, 1, 2}
    assert all(len(set(fold[questions == q])) == 1 for q in set(questions))
    assert len(set(make_folds(questions, 50, seed=1))) == 7
    assert (make_folds(questions, 3, seed=1) == fold).all()
    with pytest.raises(UserError, match="2 questions"):
        make_folds(questions[:5], 3, seed=1)


def test_fitting_ignores_held_out_rows() -> None:
    """Standardisation and components depend on the training rows alone."""
    w = world()
    rows = np.arange(300)
    one = fit(w["hidden"], w["logprob"], rows, [0, 1, 2], 8, 0)
    spoiled = w["hidden"].copy()
    spoiled[300:] = 77
    two = fit(spoiled, w["logprob"], rows, [0, 1, 2], 8, 0)
    assert np.array_equal(one.projection, two.projection) and np.array_equal(one.center, two.center)


def test_components_match_scikit_learn() -> None:
    """The Gram-matrix components span what scikit-learn's PCA of the standardised inputs spans."""
    from sklearn.decomposition import PCA
    from sklearn.preprocessing import StandardScaler

    w = world()
    ours = fit(w["hidden"], None, np.arange(480), [0, 1, 2], 5, 0).transform(w["hidden"], None)
    flat = StandardScaler().fit_transform(w["hidden"].reshape(480, -1).astype(np.float64))
    theirs = PCA(5, svd_solver="full").fit_transform(flat)
    for k in range(5):
        assert abs(np.corrcoef(ours[:, k], theirs[:, k])[0, 1]) > 0.999
    assert ours.var(0).mean() == pytest.approx(1, abs=0.02)


def test_component_counts() -> None:
    """`auto` turns components on for few rows only; no setting asks for more than the rows can carry."""
    assert n_components("auto", 300, 43_000) == 64
    assert n_components("auto", 30, 43_000) == 29
    assert n_components("auto", 300, 900) == 0
    assert n_components(0, 300, 43_000) == 0
    assert n_components(500, 300, 43_000) == 299
    assert n_components(3000, 5000, 43_000) == 2047  # they are found from 2048 rows


@pytest.mark.parametrize("pca", [0, 8])
@pytest.mark.parametrize("kind", ["hidden", "logprob", "both"])
@pytest.mark.parametrize("loss", ["squared", "binomial", "ordinal"])
def test_folded_linear_equals_the_pipeline(pca: int, kind: str, loss: linear.Loss) -> None:
    """One dot product on the raw reading gives what standardise, project and ridge give."""
    w = world()
    s = settings(features=kind, pca=pca, loss=loss)
    d = data_of(w)
    d.hidden = None if kind == "logprob" else d.hidden
    d.layers = [] if kind == "logprob" else d.layers
    trained = train_role(d, s)
    rows = np.arange(len(w["label"]))
    f = fit(d.hidden, w["logprob"] if kind != "hidden" else None, rows, d.layers, pca, 0)
    x = f.transform(d.hidden, w["logprob"])
    coef, intercept = linear.fit(x, w["label"], s.train.ridge, linear.block_weight(f.n_hidden, f.n_logprob), loss)
    assert "projection" not in trained.probe.arrays
    wanted = linear.link(x @ coef.T + intercept, loss)
    np.testing.assert_allclose(trained.probe.raw(d.hidden, w["logprob"]), wanted, atol=1e-4)


@pytest.mark.parametrize("predictor", ["linear", "mlp"])
@pytest.mark.parametrize("pca", [0, 8])
def test_saved_probe_predicts_the_same(predictor: str, pca: int, tmp_path: Path) -> None:
    """A loaded probe returns bit for bit what the one in memory does, for many rows or for one."""
    w = world()
    probe = train_role(data_of(w), settings(predictor=predictor, pca=pca)).probe
    probe.save(tmp_path)
    loaded = Probe.load(tmp_path)
    one = probe.predict(w["hidden"], w["logprob"])
    assert np.array_equal(one, loaded.predict(w["hidden"], w["logprob"]))
    assert one.min() > 0 and one.max() <= 1
    single = loaded.predict(w["hidden"][:1].astype(np.float32), w["logprob"][:1])
    assert single.shape == (1,) and single[0] == pytest.approx(one[0], abs=1e-4)
    assert loaded.reading == (LAYERS, HIDDEN) and loaded.layers == [0, 1, 2]


def test_mlp_numpy_forward_equals_torch() -> None:
    """The numpy evaluation of a trained network equals torch's."""
    torch = pytest.importorskip("torch")
    x = np.random.default_rng(0).normal(size=(50, 6)).astype(np.float32)
    options: dict[str, Any] = {"hidden_sizes": (8, 4), "dropout": 0.1, "lr": 1e-2, "weight_decay": 0.0}
    w = network.fit_mlp(x, x[:, 0] > 0, None, epochs=3, patience=1, batch_size=16, seed=0, **options).weights
    h = torch.from_numpy(x)
    for i in (1, 2):
        h = torch.relu(h @ torch.from_numpy(w[f"w{i}"]).T + torch.from_numpy(w[f"b{i}"]))
    expected = torch.sigmoid(h @ torch.from_numpy(w["w3"]).T + torch.from_numpy(w["b3"]))[:, 0]
    np.testing.assert_allclose(network.forward(w, x), expected.numpy(), atol=1e-6)


def test_mlp_stops_early_and_keeps_the_best_epoch() -> None:
    """Training on noise ends `patience` epochs after the best validation loss."""
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(80, 6)).astype(np.float32), rng.uniform(size=80)
    result = network.fit_mlp(
        x, y, (x[:20], rng.uniform(size=20)), hidden_sizes=(32, 16), dropout=0.0, lr=1e-2,
        weight_decay=0.0, epochs=200, patience=4, batch_size=16, seed=0,
    )  # fmt: skip
    losses = [row["val_loss"] for row in result.history]
    assert len(losses) < 200 and result.best_epoch == int(np.argmin(losses)) + 1
    assert len(losses) == result.best_epoch + 4


def test_layers_select_their_slices() -> None:
    """A probe of some layers reads them from the full reading or alone, and no others matter."""
    w = world()
    probe = train_role(data_of(w, [1, 2]), settings(features="hidden")).probe
    full = probe.predict(w["hidden"], None)
    assert np.array_equal(full, probe.predict(w["hidden"][:, [1, 2]], None))
    spoiled = w["hidden"].copy()
    spoiled[:, 0] = 9
    assert np.array_equal(full, probe.predict(spoiled, None))
    with pytest.raises(ValueError, match="layers"):
        probe.predict(w["hidden"][:, :1], None)


def test_choose_layers() -> None:
    """all, last, and lists (negative, unsorted) name layers; an impossible one is the user's mistake."""
    assert choose_layers("all", 4) == [0, 1, 2, 3]
    assert choose_layers("last", 4) == [3]
    assert choose_layers([-1, 1, 3], 4) == [1, 3]
    for wrong in ([4], [-5], []):
        with pytest.raises(UserError, match=r"train\.layers"):
            choose_layers(wrong, 4)


def test_rounding_noise_is_not_blown_up() -> None:
    """A dimension that is constant, or varies by less than fp16 rounding, does not get unit variance."""
    hidden = np.random.default_rng(0).normal(size=(50, 1, 3)).astype(np.float32)
    hidden[:, 0, 1] = 7
    hidden[:, 0, 2] = 1000 + 0.01 * hidden[:, 0, 2]
    x = fit(hidden, None, np.arange(50), [0], 0, 0).transform(hidden, None)
    assert x[:, 0].std() == pytest.approx(1, abs=0.01)
    assert np.abs(x[:, 1]).max() < 1e-3 and x[:, 2].std() < 0.05


def outputs(root: Path) -> dict[str, bytes]:
    return {str(p.relative_to(root)): p.read_bytes() for p in sorted((root / "data/probes").rglob("*.*"))}


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("stage")
    write_world(root)
    train_stage(settings(predictor="auto", pca=8), root)
    return root


def test_stage_writes_what_the_contract_says(stage: Path) -> None:
    """Two probes, metrics and predictions are there, with the promised columns, and the signal is found."""
    metrics = files.read_json(stage / "data/probes/metrics.json")
    table = files.read_parquet(stage / "data/probes/predictions.parquet")
    names = "sample_id author context_id question_id label_draft label_target pred_draft pred_target pred_joint"
    assert list(table.columns) == names.split()
    assert table[["pred_draft", "pred_target", "pred_joint"]].to_numpy().min() >= 1 / (4 * N)
    assert set(metrics) == {"draft", "target", "decision", "last_hidden", "labels"}
    assert set(metrics["last_hidden"]) == {"draft", "target", "decision"}
    for role in ("draft", "target"):
        last = Probe.load(stage / "data/probes/last_hidden" / role)
        assert list(last.layers) == [last.reading[0] - 1]
    for role in ("draft", "target"):
        assert set(metrics[role]["candidates"]) == {"linear", "mlp"}
        assert metrics[role]["predictor"] in metrics[role]["chosen_because"]
        assert {"epoch", "train_loss", "val_loss"} <= set(metrics[role]["history"][0])
        assert metrics[role]["n"]["questions"] == 24 and metrics[role]["beats_baselines"] is True
        probe = Probe.load(stage / "data/probes" / role)
        assert probe.role == role
        assert probe.config["labels_sha256"] == files.sha256(stage / "data/labels.parquet")
    decision = metrics["decision"]
    assert set(decision["rules"]) == {"ratio", "joint", "p"}
    for rule in ("ratio", "joint"):
        mine = decision["rules"][rule]
        assert mine["spearman"] > 0.8 and mine["beats_baselines"] is True
        assert mine["unsaid_share"] < decision["unsaid_share_of_all"]
    assert abs(decision["rules"]["joint"]["mean_predicted"] - decision["mean_true"]) < 0.03


def test_saved_joint_predicts_the_same(stage: Path) -> None:
    """The joint predictor read back judges the training rows as one that was fitted and never saved."""
    frame = files.read_parquet(stage / "data/probes/predictions.parquet")
    views = {r: files.read_safetensors(stage / f"data/samples/{r}.safetensors") for r in ("draft", "target")}
    joint = Joint.load(stage / "data/probes/joint")
    out = joint.predict({r: (v["hidden"], table(v)) for r, v in views.items()})
    assert out.min() > 0 and out.max() <= 1
    draft = (frame["author"] == "draft").to_numpy()
    truth = ratio(frame["label_target"], frame["label_draft"])[draft]
    assert np.corrcoef(out[draft], truth)[0, 1] > 0.8
    assert joint.layers == {"draft": [0, 1, 2], "target": [0, 1, 2]}


def test_stage_is_deterministic(stage: Path, tmp_path: Path) -> None:
    """The same inputs and seed give the same bytes."""
    write_world(tmp_path)
    train_stage(settings(predictor="auto", pca=8), tmp_path)
    assert outputs(tmp_path) == outputs(stage)


def test_a_probe_knows_what_it_was_trained_on(stage: Path) -> None:
    """Another split, number format or model is an error that says which; another domain is a note."""
    trained = Probe.load(stage / "data/probes/target").config["trained_on"]
    assert trained["split"] == "blank_line" and trained["weights"] == "int8" and trained["domain"] == "gsm_symbolic"
    here = settings()
    assert check(trained, here, stage, "target") is None
    other = here.model_copy(update={"text": here.text.model_copy(update={"split": "sentence"})})
    with pytest.raises(UserError, match=r"target's probe was trained with text.split blank_line, not sentence"):
        check(trained, other, stage, "target")
    with pytest.raises(UserError, match="number format bf16, not int8"):
        check(trained | {"weights": "bf16"}, here, stage, "target")
    files.write_json(stage / "data/models/target.json", {"sha256": "b" * 64})
    with pytest.raises(UserError, match=r"SHA-256 a+, not b+"):
        check(trained | {"model_sha256": "a" * 64}, here, stage, "target")
    assert "gsm8k" in (check(trained | {"domain": "gsm8k"}, here, stage, "target") or "")
    files.write_json(stage / "data/models/target.json", {"name": "mine"})
    folder = here.model_copy(update={"models": here.models.model_copy(update={"target": "/some/where/mine"})})
    assert conditions(folder, stage, "target")["model"] == "mine"  # no path of this machine
    (stage / "data/models/target.json").unlink()


def test_a_probe_of_other_weights_is_refused_however_they_are_kept(tmp_path: Path) -> None:
    """In several files, on a server that tells a revision only, or by name alone."""
    here, record = settings(), tmp_path / "data/models/target.json"

    def described(**model: Any) -> dict[str, Any]:
        files.write_json(record, model)
        return conditions(here, tmp_path, "target")

    shards = {"config.json": "c", "model-00001-of-00002.safetensors": "a", "model-00002-of-00002.safetensors": "b"}
    sharded = described(name="org/big", revision="1", files=shards)
    assert check(sharded, here, tmp_path, "target") is None
    described(name="org/big", revision="1", files=shards | {"model-00002-of-00002.safetensors": "x"})
    with pytest.raises(UserError, match="weights with the SHA-256"):
        check(sharded, here, tmp_path, "target")
    served = described(name="org/big", revision="1", files={"config.json": "c"})
    assert check(served, here, tmp_path, "target") is None and check(sharded, here, tmp_path, "target") is None
    described(name="org/big", revision="2", files={"config.json": "c"})
    with pytest.raises(UserError, match="the model big@1, not big@2"):
        check(served, here, tmp_path, "target")
    described(name="org/small", revision="2", files={})
    with pytest.raises(UserError, match="trained for org/big, not org/small"):
        check(sharded, here, tmp_path, "target")


def test_unfamiliar_states_are_told_from_familiar_ones(stage: Path) -> None:
    """About one in a hundred states of unseen questions is beyond the limit; states from elsewhere nearly all are."""
    w = world(questions=60)
    seen = np.flatnonzero(make_folds(w["questions"], 3, 0) > 0)
    made = fit_novelty(w["hidden"][seen], make_folds(w["questions"][seen], 4, 0), [0, 1, 2], 0)
    unseen = np.setdiff1d(np.arange(len(w["label"])), seen)
    assert 0 < made.far(w["hidden"][unseen]).mean() < 0.04
    elsewhere = w["hidden"].mean(0) + 40 * np.random.default_rng(0).normal(size=(50, LAYERS, HIDDEN))
    assert made.far(elsewhere).mean() > 0.9
    probe = Probe.load(stage / "data/probes/target")
    far = probe.far(elsewhere)
    assert far is not None and far.mean() > 0.9


def decides(rule: str) -> Settings:
    return validate(settings().model_dump() | {"decide": {"rule": rule}})


def test_own_labels_train_on_own_samples(tmp_path: Path) -> None:
    """With `labels: own` unlabelled rows are left out of training, and the decision has no truth."""
    write_world(tmp_path, own=True)
    train_stage(settings(), tmp_path)
    metrics = files.read_json(tmp_path / "data/probes/metrics.json")
    table = files.read_parquet(tmp_path / "data/probes/predictions.parquet")
    assert metrics["target"]["n"]["draft_rows"] == 0 and metrics["target"]["n"]["rows"] == 24 * N
    assert metrics["draft"]["n"]["draft_rows"] == metrics["draft"]["n"]["rows"]
    assert metrics["target"]["candidates"]["linear"]["draft"] is None
    assert metrics["decision"]["rules"]["ratio"]["beats_baselines"] is None
    assert metrics["decision"]["mean_true"] is None
    with pytest.raises(UserError, match="own"):
        Joint.load(tmp_path / "data/probes/joint")
    assert set(read_probes(tmp_path / "data/probes", decides("p"))) == {"draft", "target"}, "the others go on"
    with pytest.raises(UserError, match="own"):
        read_probes(tmp_path / "data/probes", decides("joint"))
    assert table["pred_target"].notna().all()


def test_noise_is_flagged(tmp_path: Path) -> None:
    """When the features are noise neither the probes nor the decision claim to beat the baselines."""
    write_world(tmp_path, noise=True)
    train_stage(settings(), tmp_path)
    metrics = files.read_json(tmp_path / "data/probes/metrics.json")
    assert metrics["target"]["beats_baselines"] is False
    assert metrics["decision"]["baselines"]["constant"]["spearman"] == 0
    assert not any(r["beats_baselines"] for r in metrics["decision"]["rules"].values())


def test_the_constant_is_the_median_of_the_other_folds() -> None:
    """No number agrees better with what it was chosen from; rows without a decision don't count."""
    truth, fold = np.array([0.0, 0.1, 1.0, np.nan, 0.4, 0.6, 0.5]), np.array([0, 0, 0, 0, 1, 1, 1])
    assert _constant(truth, fold).tolist() == [0.5] * 4 + [0.1] * 3


def test_mismatched_files_are_the_users_mistake(tmp_path: Path) -> None:
    """Row counts that differ, foreign labels and broken numbers end in one line that says what to run."""
    write_world(tmp_path)
    labels = files.read_parquet(tmp_path / "data/labels.parquet")
    files.write_parquet(tmp_path / "data/labels.parquet", labels.assign(sample_id=labels["sample_id"] + "x"))
    with pytest.raises(UserError, match="cluster"):
        train_stage(settings(), tmp_path)
    files.write_parquet(tmp_path / "data/labels.parquet", labels)
    path = tmp_path / "data/samples/draft.safetensors"
    tensors = files.read_safetensors(path)
    files.write_safetensors(path, {k: v[:-1] for k, v in tensors.items()})
    with pytest.raises(UserError, match="rows"):
        train_stage(settings(), tmp_path)
    tensors["hidden"][3, 1, 2] = np.inf
    files.write_safetensors(path, tensors)
    with pytest.raises(UserError, match="finite"):
        train_stage(settings(), tmp_path)


def test_labels_of_other_samples_are_the_users_mistake(tmp_path: Path) -> None:
    """The samples' ids are the same for other texts, so the labels say which samples they are of."""
    write_world(tmp_path)
    samples = tmp_path / "data/samples/samples.parquet"
    labels = files.read_parquet(tmp_path / "data/labels.parquet")
    labels.attrs["samples_sha256"] = files.sha256(samples)
    files.write_parquet(tmp_path / "data/labels.parquet", labels)
    read_material(settings(), tmp_path)
    files.write_parquet(samples, files.read_parquet(samples).assign(text="other"))
    with pytest.raises(UserError, match="run `semspec stage cluster`"):
        read_material(settings(), tmp_path)


def test_probe_loads_without_training_libraries() -> None:
    """Loading and predicting need neither scikit-learn nor torch."""
    import subprocess
    import sys

    code = "import sys, semspec.probe; print(sorted({'torch', 'sklearn', 'scipy'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip() == "[]"

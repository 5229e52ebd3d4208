"""Greedy clustering, the cascade in front of it, and the two kinds of model behind the cascade."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from semspec.errors import UserError
from semspec.semantics.cache import Cache
from semspec.semantics.clustering import cluster
from semspec.semantics.encoders import CosineModel, NliModel
from semspec.semantics.entailment import Cascade


class Scores:
    """A model that says what it is told, and remembers what it was asked."""

    def __init__(self, score: float) -> None:
        self.value, self.asked = score, list[tuple[str, str]]()

    def score(self, pairs: Sequence[tuple[str, str]]) -> list[float]:
        self.asked += pairs
        return [self.value] * len(pairs)


@settings(deadline=None)
@given(st.lists(st.text(alphabet="abcd", max_size=3)), st.integers(1, 4))
def test_cluster_partitions_by_an_equivalence(texts: list[str], modulus: int) -> None:
    """With a true equivalence the clusters are its classes, numbered by first appearance."""
    ids = cluster(texts, lambda pairs: [len(a) % modulus == len(b) % modulus for a, b in pairs])
    assert len(ids) == len(texts)
    assert list(dict.fromkeys(ids)) == list(range(len(set(ids))))
    for i, a in enumerate(texts):
        assert [j == ids[i] for j in ids] == [len(b) % modulus == len(a) % modulus for b in texts]


@settings(deadline=None)
@given(st.lists(st.integers(0, 9).map(str)), st.sets(st.tuples(st.integers(0, 9), st.integers(0, 9))))
def test_cluster_partitions_by_any_relation(texts: list[str], relation: set[tuple[int, int]]) -> None:
    """Even an intransitive decision yields one cluster per text, and equal texts share it."""
    ids = cluster(texts, lambda pairs: [(int(a), int(b)) in relation for a, b in pairs])
    assert list(dict.fromkeys(ids)) == list(range(len(set(ids))))
    assert all(ids[i] == ids[texts.index(t)] for i, t in enumerate(texts))


def test_cluster_asks_only_representatives_in_one_call() -> None:
    """A new text is compared with each cluster's first member, all in one call."""
    calls: list[list[tuple[str, str]]] = []

    def same(pairs: list[tuple[str, str]]) -> list[bool]:
        calls.append(pairs)
        return [a[0] == b[0] for a, b in pairs]

    assert cluster(["a1", "a2", "b1", "a1", "a3", "b2"], same) == [0, 0, 1, 0, 0, 1]
    assert calls == [
        [("a1", "a2")],
        [("a1", "b1")],
        [("a1", "a3"), ("b1", "a3")],
        [("a1", "b2"), ("b1", "b2")],
    ]


@pytest.mark.parametrize(
    ("pair", "score", "expected", "asked"),
    [
        (("**Step 1:** We begin.", "we begin"), 0.0, True, 0),
        (("5 + 3 = 8", "5 + 3 = 9"), 1.0, False, 0),
        (("5 + 3 = 8", "3 + 5 = 8"), 0.9, True, 1),
        (("5 + 3 = 8", "3 + 5 = 8"), 0.1, False, 1),
        (("We begin.", "Let us start."), 0.9, True, 1),
        (("We begin.", "Let us stop."), 0.1, False, 1),
    ],
)
def test_cascade(pair: tuple[str, str], score: float, expected: bool, asked: int) -> None:
    """Plain spelling first, then the gate's veto, then the model; later stages are not asked in vain."""
    model = Scores(score)
    assert Cascade(True, model, 0.6).same("", [pair, pair[::-1]]) == [expected] * 2
    assert len(model.asked) == asked


def test_steps_that_calculate_need_less_of_the_model() -> None:
    """Where the gate finds the same mathematics and an equation, the lower threshold holds; else the other one."""
    cascade = Cascade(True, Scores(0.5), 0.6, calculated=0.4)
    pairs = [("5 + 3 = 8", "Adding 3 gives 8"), ("There are 8 apples.", "8 pears."), ("We begin.", "Let us start.")]
    assert cascade.same("", pairs) == [True, False, False]


def test_final_answers_need_no_model() -> None:
    """Two boxed results are compared by value alone."""
    model = Scores(0.0)
    pairs = [("The answer is \\boxed{8}.", "\\boxed{8.0} apples"), ("\\boxed{8}", "\\boxed{9}")]
    assert Cascade(True, model, 0.6).same("", pairs) == [True, False] and not model.asked


def test_cascade_without_gate_or_model() -> None:
    """Without the gate the model judges numbers too; without a model the gate decides alone."""
    pair = ("5 + 3 = 8", "5 + 3 = 9")
    assert Cascade(False, Scores(1.0), 0.6).same("", [pair]) == [True]
    alone = Cascade(True, None, 0.6)
    assert alone.same("", [pair, ("5 + 3 = 8", "3 + 5 = 8"), ("We begin.", "Let us start.")]) == [
        False,
        True,
        False,
    ]


def test_context_is_put_in_front_only_when_asked_for() -> None:
    """With the option the model reads context and step, and a decision holds for its own context only."""
    pair = ("We begin.", "Let us start.")
    plain, with_context = Scores(1.0), Scores(1.0)
    for model, use in ((plain, False), (with_context, True)):
        cascade = Cascade(True, model, 0.6, use_context=use)
        for context in ("Q1", "Q2", "Q1"):
            cascade.same(context, [pair])
    assert plain.asked == [("Let us start.", "We begin.")]
    assert with_context.asked == [(f"{q}\n\nLet us start.", f"{q}\n\nWe begin.") for q in ("Q1", "Q2")]


@pytest.fixture(scope="module")
def nli_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A BERT of 16 units whose label order is not MNLI's and whose answer depends on its bias alone."""
    import torch
    from transformers import BertConfig, BertForSequenceClassification, BertTokenizerFast

    folder = tmp_path_factory.mktemp("nli")
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefghijklmnopqrstuvwxyz"]
    BertTokenizerFast(vocab={w: i for i, w in enumerate(words)}).save_pretrained(folder)
    config = BertConfig(
        vocab_size=len(words),
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=16,
        max_position_embeddings=32,
        id2label={0: "CONTRADICTION", 1: "Entailment", 2: "NEUTRAL"},
        label2id={"CONTRADICTION": 0, "Entailment": 1, "NEUTRAL": 2},
    )
    torch.manual_seed(0)
    model = BertForSequenceClassification(config)
    with torch.no_grad():
        model.classifier.weight.zero_()
        model.classifier.bias.copy_(torch.tensor([0.0, 2.0, 0.0]))
    model.save_pretrained(folder)
    return folder


def test_nli_takes_entailment_by_name_and_is_strict(nli_folder: Path) -> None:
    """The score is the entailment label's probability, and -1 once another label is likelier in one
    direction.
    """
    model = NliModel(nli_folder)
    chance = float(np.exp(2) / (np.exp(2) + 2))
    assert model.score([("a b", "c"), ("a", "a b c d e f")]) == pytest.approx([chance] * 2, abs=1e-4)

    tokenizer, inner, *_ = model._loaded
    forward, a = inner.forward, tokenizer.convert_tokens_to_ids("a")

    def one_way(**batch):  # type: ignore[no-untyped-def]
        out = forward(**batch)
        out.logits[batch["input_ids"][:, 1] == a] = out.logits.new_tensor([3.0, 2.0, 0.0])
        return out

    inner.forward = one_way
    assert model.score([("a", "b")]) == [-1.0]
    assert model.score([("c", "b")]) == pytest.approx([chance], abs=1e-4)


def test_nli_cuts_a_long_context_from_the_left(nli_folder: Path) -> None:
    """Whatever the context's length, both steps reach the model whole, at the end of their halves."""
    model = NliModel(nli_folder)
    seen: list[str] = []
    tokenizer, inner, *_ = model._loaded
    forward = inner.forward

    def spy(**batch):  # type: ignore[no-untyped-def]
        seen.extend(tokenizer.decode(row) for row in batch["input_ids"])
        return forward(**batch)

    inner.forward = spy
    model.score([("a " * 60 + "x y", "a " * 60 + "y z")])
    assert len(seen) == 2
    assert all(" x y [SEP]" in s and " y z [SEP]" in s and "a a" in s for s in seen)


def test_nli_refuses_a_model_without_entailment(nli_folder: Path, tmp_path: Path) -> None:
    """A classifier of something else, or a folder that holds none, is the user's mistake."""
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    model = AutoModelForSequenceClassification.from_pretrained(nli_folder)
    model.config.id2label = {0: "LABEL_0", 1: "not_entailment", 2: "LABEL_2"}
    model.save_pretrained(tmp_path / "other")
    AutoTokenizer.from_pretrained(nli_folder).save_pretrained(tmp_path / "other")
    with pytest.raises(UserError, match="needs 'entailment'"):
        NliModel(tmp_path / "other").score([("a", "b")])
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match="cannot load the entailment model"):
        NliModel(tmp_path / "empty").score([("a", "b")])


def test_an_answer_is_paid_for_once(nli_folder: Path, tmp_path: Path) -> None:
    """What was scored is read from disk by the next model, which then is not even loaded; order and identity count."""
    path = tmp_path / "cache/kept.sqlite3"
    first = NliModel(nli_folder, cache=Cache(path, "m"))
    found = first.score([("a", "b"), ("c d", "e")])
    again = NliModel(tmp_path / "there is no model here", cache=Cache(path, "m"))
    assert again.score([("e", "c d"), ("a", "b")]) == found[::-1]
    for cache, pair in ((Cache(path, "m"), ("a", "e")), (Cache(path, "other"), ("a", "b"))):
        with pytest.raises(UserError, match="cannot load"):
            NliModel(tmp_path / "there is no model here", cache=cache).score([pair])


def test_keys_of_the_cache_do_not_run_into_each_other(tmp_path: Path) -> None:
    """Texts are kept apart, any text is one, and more keys than one query takes are found."""
    cache = Cache(tmp_path / "c.sqlite3", "m")
    texts = [("ab", "c"), ("a", "bc"), ("abc",), ("c", "ab"), ("\ud800", "\0"), ("", "")]
    assert len({cache.key(*t) for t in texts} | {Cache(None, "ma").key("b", "c")}) == len(texts) + 1
    many = {cache.key(str(i)): str(i).encode() for i in range(1200)}
    cache.keep(many)
    assert Cache(tmp_path / "c.sqlite3", "m").find([*many, b"?"]) == many


def test_a_damaged_cache_is_named(tmp_path: Path) -> None:
    """One line that says which file to delete."""
    (tmp_path / "c.sqlite3").write_text("no data base" * 100)
    with pytest.raises(UserError, match=r"c\.sqlite3 cannot be used .* delete it"):
        Cache(tmp_path / "c.sqlite3")


@pytest.mark.model
def test_cosine_of_the_real_encoder() -> None:
    """MiniLM ranks a paraphrase over another step, and a text's vector does not depend on its neighbours."""
    from semspec.models import ensure

    folder = ensure("all-minilm-l6-v2")
    steps = [
        "First, we find how many eggs are left after breakfast.",
        "Let us start by computing the number of eggs that remain after breakfast.",
        "Therefore the train arrives at noon.",
        "5 + 3 = 8",
        "eggs " * 600,
    ]
    model = CosineModel(folder)
    near, far = model.score([(steps[0], steps[1]), (steps[0], steps[2])])
    assert near > 0.7 > 0.5 > far
    together = model.embed(steps)
    assert np.allclose(np.linalg.norm(together, axis=1), 1, atol=1e-5)
    alone = CosineModel(folder)
    assert all(np.array_equal(alone.embed([s])[0], v) for s, v in zip(steps[::-1], together[::-1], strict=True))

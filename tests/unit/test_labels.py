"""Semantic probabilities from clustered samples."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from semspec import files
from semspec.config import validate
from semspec.errors import UserError
from semspec.semantics.labels import COLUMNS, context_text, make_labels, summary
from semspec.stages import STAGES


class Equal:
    """Steps mean the same when their first letter is the same; remembers the contexts it saw."""

    def __init__(self) -> None:
        self.contexts: list[str] = []

    def same(self, context: str, pairs: Sequence[tuple[str, str]]) -> list[bool]:
        self.contexts.append(context)
        return [a[:1] == b[:1] for a, b in pairs]


def table(**texts: tuple[list[str], list[str]]) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Samples and contexts from context_id -> (draft's texts, target's texts)."""
    rows = [
        {
            "sample_id": f"{c}/{author}/{i}",
            "context_id": c,
            "question_id": c,
            "author": author,
            "index": i,
            "text": t,
        }
        for c, both in texts.items()
        for author, own in zip(("draft", "target"), both, strict=True)
        for i, t in enumerate(own)
    ]
    contexts = [{"context_id": c, "question_id": c, "question": f"Q{c}", "steps": np.array(["s1\n\n"])} for c in texts]
    columns = ["sample_id", "context_id", "question_id", "author", "index", "text"]
    return pd.DataFrame(rows, columns=columns), pd.DataFrame(contexts)


def test_cross_labels_by_hand() -> None:
    """A sample's probability under each model is that model's share of samples with the same meaning."""
    samples, contexts = table(c=(["a1", "a2", "b1", "c1"], ["a3", "d1"]))
    out = make_labels(samples, contexts, Equal(), "cross")
    assert list(out.columns) == COLUMNS
    assert list(out["sample_id"]) == list(samples["sample_id"])
    assert list(out["cluster"]) == [0, 0, 2, 3, 0, 1]  # the target's samples enter first
    assert list(out["p_draft"]) == [0.5, 0.5, 0.25, 0.25, 0.5, 0.0]
    assert list(out["p_target"]) == [0.5, 0.5, 0.0, 0.0, 0.5, 0.5]
    figures = summary(out)
    assert figures["clusters_per_context"] == 4
    assert figures["singletons"] == pytest.approx(0.5)
    assert figures["p_target_on_draft"] == pytest.approx(0.25)
    assert figures["p_draft_on_target"] == pytest.approx(0.25)
    assert figures["true_acceptance"] == pytest.approx(0.5)


def test_own_labels_leave_the_other_model_empty() -> None:
    """Own labels cluster each model apart, with distinct ids, and say nothing about the other."""
    samples, contexts = table(c=(["a1", "a2", "b1"], ["a3", "d1"]))
    out = make_labels(samples, contexts, Equal(), "own")
    draft, target = out[out["author"] == "draft"], out[out["author"] == "target"]
    assert set(draft["cluster"]).isdisjoint(target["cluster"])
    assert draft["p_draft"].tolist() == pytest.approx([2 / 3, 2 / 3, 1 / 3])
    assert target["p_target"].tolist() == [0.5, 0.5]
    assert draft["p_target"].isna().all() and target["p_draft"].isna().all()
    assert summary(out)["true_acceptance"] is None


def test_labels_say_which_samples_they_are_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The stage writes the same bytes again, with the samples' hash, and of other samples other ones."""
    monkeypatch.setattr("semspec.semantics.entailment.build", lambda *_: Equal())
    samples, contexts = table(c=(["a1", "b1"], ["a2"]))
    chosen = validate({"models": {"draft": "d", "target": "t", "encoder": "e"}, "text": {"system": "s"}})
    files.write_parquet(tmp_path / "data/contexts.parquet", contexts)
    written = []
    for text in ("a1", "a1", "a9"):
        samples.loc[0, "text"] = text
        files.write_parquet(tmp_path / "data/samples/samples.parquet", samples)
        STAGES["cluster"](chosen, tmp_path)
        written.append((tmp_path / "data/labels.parquet").read_bytes())
    assert written[0] == written[1] != written[2]
    digest = files.sha256(tmp_path / "data/samples/samples.parquet")
    assert files.read_parquet(tmp_path / "data/labels.parquet").attrs == {"samples_sha256": digest}


def test_rows_keep_their_order_and_shuffling_changes_nothing() -> None:
    """The label of a sample does not depend on the order of the rows; the output follows the input."""
    samples, contexts = table(c=(["a1", "b1", "a2"], ["b2", "c1"]), d=(["x"], ["y", "x2"]))
    shuffled = samples.sample(frac=1, random_state=3)
    straight, mixed = (make_labels(s, contexts, Equal()) for s in (samples, shuffled))
    assert list(mixed["sample_id"]) == list(shuffled["sample_id"])
    pd.testing.assert_frame_equal(
        straight.sort_values("sample_id", ignore_index=True),
        mixed.sort_values("sample_id", ignore_index=True),
    )


@settings(deadline=None, max_examples=25)
@given(st.lists(st.sampled_from("abcd"), min_size=1), st.lists(st.sampled_from("abcd"), min_size=1))
def test_probabilities_sum_to_one_over_clusters(draft: list[str], target: list[str]) -> None:
    """Over the clusters of a context each model's probabilities sum to one, and its own samples' are never
    zero.
    """
    samples, contexts = table(c=(draft, target))
    cross = make_labels(samples, contexts, Equal(), "cross")
    own = make_labels(samples, contexts, Equal(), "own")
    for model in ("draft", "target"):
        per_cluster = cross.groupby("cluster")[f"p_{model}"]
        assert (per_cluster.nunique() == 1).all()
        assert per_cluster.first().sum() == pytest.approx(1)
        mine = own[own["author"] == model]
        assert mine.groupby("cluster")[f"p_{model}"].first().sum() == pytest.approx(1)
        assert (cross.loc[cross["author"] == model, f"p_{model}"] > 0).all()


def test_one_author_missing_in_a_context() -> None:
    """Where a model has no samples its probability is unknown, not zero."""
    samples, contexts = table(c=(["a", "b"], []))
    out = make_labels(samples, contexts, Equal(), "cross")
    assert out["p_target"].isna().all()
    assert out["p_draft"].tolist() == [0.5, 0.5]


def test_context_and_progress_reach_the_caller() -> None:
    """The entailment model is given question and steps; progress counts contexts."""
    samples, contexts = table(c=(["a", "b"], ["c"]), d=(["a"], ["b"]))
    seen, entailment = list[tuple[int, int]](), Equal()
    make_labels(samples, contexts, entailment, "cross", lambda done, total: seen.append((done, total)))
    assert seen == [(1, 2), (2, 2)]
    assert set(entailment.contexts) == {"Qc\n\ns1", "Qd\n\ns1"}
    assert context_text("Q", []) == "Q"


def test_unknown_context_is_the_users_mistake() -> None:
    """Samples of another run's contexts are refused."""
    samples, contexts = table(c=(["a"], ["b"]))
    with pytest.raises(UserError, match="unknown context 'c'"):
        make_labels(samples, contexts.iloc[:0], Equal())

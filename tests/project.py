"""A small project folder for tests: params.yaml of the repository, cut down, with tiny random models on disk."""

from __future__ import annotations

import shutil
from pathlib import Path

from tiny import tiny_engine

from semspec import config, schema

REPO = Path(__file__).resolve().parents[1]
TEMPLATE = "{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}\n{% endfor %}assistant:\n"


def save_tiny(folder: Path, **kwargs) -> Path:
    """A loadable model folder with a random model; the keywords are those of `tiny_engine`."""
    engine = tiny_engine(**kwargs)
    engine.tokenizer.chat_template = TEMPLATE
    engine.model.save_pretrained(folder)
    engine.tokenizer.save_pretrained(folder)
    return folder


def make_project(root: Path, *overrides: str) -> schema.Settings:
    """params.yaml in `root`, with tiny draft and target in `root`/models and everything small."""
    root.mkdir(parents=True, exist_ok=True)
    shutil.copy(REPO / "tests/defaults/params.yaml", root / "params.yaml")
    draft = save_tiny(root / "models/draft", kind="llama", seed=1, merges=True)
    target = save_tiny(root / "models/target", kind="qwen2", seed=2)
    config.apply(
        root,
        None,
        [
            f"models.draft={draft}",
            f"models.target={target}",
            "engine.weights=fp32",
            "engine.threads=1",
            "text.system=Think.",
            "text.max_step_tokens=8",
            "contexts.questions=6",
            "contexts.max_tokens=24",
            "sample.n=3",
            "sample.contexts_per_shard=2",
            "bench.limit=2",
            "bench.max_tokens=24",
            *overrides,
        ],
    )
    return config.load(root)

"""Contexts, and what both models would say in them: the raw material of the semantic labels.

A context is a question plus the first k steps of the target's own chain (paper section 3.2.1). In each, both models
write N next steps; every step is then seen by both models: by its author while writing, by the other in a reading
pass. Work is saved shard by shard, and a rerun goes on after the last complete shard. Knows engines and files; knows
nothing of meaning, clusters or probes.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from semspec import engine as engines
from semspec.engine.base import Engine, Sampling, Segment, Step, never, segment
from semspec.engine.statistics import pack
from semspec.errors import UserError
from semspec.files import read_json, read_parquet, read_safetensors, sha256, write_parquet, write_safetensors
from semspec.provenance import ARITHMETIC
from semspec.text import Splitter

if TYPE_CHECKING:
    from semspec.schema import Settings

ROLES = ("draft", "target")


def seed_of(*parts: object) -> int:
    """A 63-bit seed from anything printable; the same parts give the same seed everywhere."""
    return int.from_bytes(hashlib.sha256(repr(parts).encode()).digest()[:8], "big") >> 1


def prompt_of(engine: Engine, question: str, system: str, steps: list[str]) -> list[int]:
    """Prompt tokens of a context: the chat turn, then each step encoded by itself, as decoding appends them."""
    tokens = list(engine.chat(question, system))
    for step in steps:
        tokens += engine.encode(step)
    return tokens


def make_contexts(settings: Settings, root: Path) -> None:
    """Stage `contexts`: the target answers training questions; contexts are cut from its chains."""
    import pandas as pd
    from tqdm import tqdm

    from semspec.problems import load

    chosen = settings.contexts
    problems = load(chosen.dataset, "train", chosen.questions, settings.seed, chosen.data_dir or None)
    target = engines.load(settings.models.target, settings.engine.of("target"), settings.models.trust_remote_code)
    target.observe([])
    splitter = Splitter(settings.text.split)
    rows: list[dict[str, Any]] = []
    at_once = settings.engine.batch_rows
    with tqdm(total=len(problems), desc="contexts", unit="question") as bar:
        for i in range(0, len(problems), at_once):
            part = problems[i : i + at_once]
            prompts = [target.chat(p.question, settings.text.system) for p in part]
            chains = target.sample_many(prompts, 1, never, Sampling(), chosen.max_tokens, [0] * len(part))
            for problem, (chain,) in zip(part, chains, strict=True):
                steps = splitter.split(chain.text)
                if chain.stop == "length" and len(steps) > 1:
                    steps = steps[:-1]  # the last one was cut in the middle
                rng = np.random.default_rng(seed_of(settings.seed, "context", problem.id))
                # the chain's last step is never context: nothing would be left to say
                ks = np.arange(min(chosen.max_steps, max(0, len(steps) - 1)) + 1)
                for k in sorted(rng.permutation(ks)[: chosen.per_question].tolist()):
                    rows.append(
                        {
                            "context_id": f"{problem.id}#{k}",
                            "question_id": problem.id,
                            "question": problem.question,
                            "steps": steps[:k],
                            "domain": problem.domain,
                            "answer": problem.answer,
                        }
                    )
            bar.update(len(part))
    write_parquet(root / "data/contexts.parquet", pd.DataFrame(rows))


def _key(settings: Settings, root: Path) -> str:
    """Identity of everything that a shard depends on; a shard of another identity is never used."""
    models = [read_json(root / f"data/models/{r}.json") for r in ROLES]
    chosen = map(repr, (settings.seed, settings.sample, settings.text, settings.engine))
    settled = [ARITHMETIC, *chosen, *engines.uncommon(settings.engine)]
    identity = [sha256(root / "data/contexts.parquet"), models, settled]
    return hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()[:16]


def sample(settings: Settings, root: Path, part: tuple[int, int] = (1, 1)) -> None:
    """Stage `sample`: N next steps of each context by both models, each seen by both models.

    part: (k, n) = make every n-th shard, from the k-th on; several processes or machines that share the folder divide
    the work so. The shards are put together, and the stage is done, only by a call that finds or makes them all.
    """
    import pandas as pd
    from tqdm import tqdm

    contexts = read_parquet(root / "data/contexts.parquet")
    folder = root / "data/samples"
    shards = folder / "shards" / _key(settings, root)
    size = settings.sample.contexts_per_shard
    count = -(-len(contexts) // size)
    parts = ("parquet", *(f"{role}.safetensors" for role in ROLES))

    def made(i: int) -> bool:
        return all((shards / f"{i:05d}.{p}").exists() for p in parts)

    missing = [i for i in range(count) if not made(i)]
    mine = range(part[0] - 1, count, part[1])
    todo = [i for i in missing if i in mine]
    if len(missing) < count:
        print(f"sample: {count - len(missing)} of {count} shards are already there")
    if todo:
        models = {
            role: engines.load(
                getattr(settings.models, role), settings.engine.of(role), settings.models.trust_remote_code
            )
            for role in ROLES
        }
        for i in tqdm(todo, desc="sample", unit="shard", total=len(mine), initial=len(mine) - len(todo)):
            if made(i):  # by another process, meanwhile
                continue
            chosen = contexts.iloc[i * size : (i + 1) * size].to_dict("records")
            table, tensors = _sample_shard(settings, models, chosen)
            for role in ROLES:
                write_safetensors(shards / f"{i:05d}.{role}.safetensors", tensors[role])
            write_parquet(shards / f"{i:05d}.parquet", pd.DataFrame(table))  # last: it marks a complete shard
    if part[1] > 1:
        print(f"sample: part {part[0]} of {part[1]} is made; `semspec stage sample` puts the parts together")
        return
    for role in ROLES:
        views = [read_safetensors(shards / f"{i:05d}.{role}.safetensors") for i in range(count)]
        merged = {name: np.concatenate([v[name] for v in views]) for name in views[0]}
        write_safetensors(folder / f"{role}.safetensors", merged)
    tables = [read_parquet(shards / f"{i:05d}.parquet") for i in range(count)]
    write_parquet(folder / "samples.parquet", pd.concat(tables, ignore_index=True))
    shutil.rmtree(shards)
    with suppress(OSError):  # half-made work of other settings stays
        shards.parent.rmdir()


def _sample_shard(
    settings: Settings, models: dict[str, Engine], contexts: list[dict[str, Any]]
) -> tuple[list[dict[str, Any]], dict[str, dict[str, np.ndarray]]]:
    """Rows and, per READER, `hidden` fp16 `[n, layers, hidden]` and the tokens' scores, of one shard."""
    n, splitter = settings.sample.n, Splitter(settings.text.split)
    prompts = {
        role: [prompt_of(m, c["question"], settings.text.system, list(c["steps"])) for c in contexts]
        for role, m in models.items()
    }
    rows: list[dict[str, Any]] = []
    views: dict[str, list[Step]] = {role: [] for role in ROLES}
    for author in ROLES:
        other = ROLES[1 - ROLES.index(author)]
        writer, reader = models[author], models[other]
        seeds = [seed_of(settings.seed, author, c["context_id"]) for c in contexts]
        written = _sample_chunked(settings, writer, prompts[author], splitter, seeds)
        segments = [[_readable(s, writer, reader) for s in samples] for samples in written]
        read = reader.read_many(prompts[other], segments)
        for context, seed, own, others in zip(contexts, seeds, written, read, strict=True):
            for i in range(n):
                rows.append(
                    {
                        "sample_id": f"{context['context_id']}/{author}/{i}",
                        "context_id": context["context_id"],
                        "question_id": context["question_id"],
                        "author": author,
                        "index": i,
                        "text": own[i].text,
                        "n_tokens": len(own[i].tokens),
                        "stop": own[i].stop,
                        "seed": seed,
                    }
                )
                views[author].append(own[i])
                views[other].append(others[i])
    return rows, {role: _tensors(steps) for role, steps in views.items()}


def _readable(step: Step, writer: Engine, reader: Engine) -> Segment:
    """The step for the other model; control tokens without text stand for an end there."""
    made = segment(step, writer, reader)
    return made if made.tokens else Segment(made.text, True, [reader.eos_id])


def _sample_chunked(
    settings: Settings, engine: Engine, prompts: list[list[int]], splitter: Splitter, seeds: list[int]
) -> list[list[Step]]:
    """`sample_many` in batches of at most `engine.batch_rows` rows (one context at least)."""
    s = settings.sample
    sampling = Sampling(s.temperature, s.top_p)
    at_once = max(1, settings.engine.batch_rows // s.n)
    out: list[list[Step]] = []
    for i in range(0, len(prompts), at_once):
        part = slice(i, i + at_once)
        out += engine.sample_many(
            prompts[part], s.n, splitter.ends, sampling, settings.text.max_step_tokens, seeds[part]
        )
    return out


def _tensors(steps: list[Step]) -> dict[str, np.ndarray]:
    hidden = np.stack([s.pooled for s in steps])
    if not np.isfinite(hidden).all():
        raise UserError("a model gave hidden states that are not finite; try `--set engine.weights=fp32`")
    limit = float(np.finfo(np.float16).max)
    return {
        "hidden": hidden.clip(-limit, limit).astype(np.float16),
        **pack([s.scores for s in steps]),
    }

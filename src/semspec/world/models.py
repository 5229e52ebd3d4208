"""Two tiny language models of the small world, trained here in about a minute: a target, and a draft that errs more.

They share a byte-level BPE tokenizer that is trained on the same solutions, have an architecture of transformers' own,
and are saved as ordinary model folders, so every part of semspec can use them like any other pair. Each is made in a
process of its own with one thread: the same seed gives the same weights on the same machine. It knows nothing of
probes, labels or methods.
"""

from __future__ import annotations

import shutil
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import wait
from dataclasses import asdict, dataclass
from itertools import chain, cycle, islice
from pathlib import Path
from random import Random
from typing import Any

from semspec.errors import UserError
from semspec.files import read_json, save_model, write_json
from semspec.problems import load
from semspec.problems.language import Problem, parse, solution
from semspec.workers import count, workers

USER, ASSISTANT, END = "<|user|>", "<|assistant|>", "<|end|>"
# A system prompt is left out: these models never saw one.
TEMPLATE = (
    "{% for m in messages %}{% if m['role'] == 'user' %}" + USER + "{{ m['content'] }}"
    "{% elif m['role'] == 'assistant' %}" + ASSISTANT + "{{ m['content'] }}" + END + "{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}" + ASSISTANT + "{% endif %}"
)
PIECES = r"\d+|[^\d\n]+\n*|\n+"  # a token crosses neither the border of a number nor the end of a step
VOCABULARY = 1024  # at most; less is needed
AGAIN = 4  # solutions of one question
TEXTS = 4000  # solutions that the tokenizer is trained on; more give a vocabulary of the same size
RECENT = 20  # batches that a loss is averaged over
BUCKET = 16  # batches whose rows are sorted by length together, so that little is padding
RECIPE_FILE = "recipes.json"
IGNORED = -100  # label of a token that is not learned

Row = tuple[list[int], list[int]]  # token ids of the prompt, and of the answer with END
Progress = Callable[[int, int], None]  # training steps done, in all


@dataclass(frozen=True)
class Recipe:
    """Size of a model, and how long it learns: at most `steps` batches of `batch` solutions.

    stop: it ends as soon as the mean loss (nats a token) of the last `RECENT` batches is below this. A model learns to
    find the next operation all at once, at a step that differs from seed to seed; the loss tells how far it got.
    """

    hidden: int
    layers: int
    heads: int
    steps: int
    lr: float
    stop: float = 0.0
    batch: int = 32


RECIPES = {
    "target": Recipe(hidden=96, layers=3, heads=4, steps=500, lr=3e-3),
    "draft": Recipe(hidden=48, layers=2, heads=4, steps=900, lr=5e-3, stop=0.6),
}


def ensure_pair() -> None:
    """Train the pair into the model store, with a progress bar, unless it is there and was made by these recipes."""
    from tqdm import tqdm

    from semspec.models import fetch

    folder = fetch.home() / "models" / "synthetic"
    recipes = {role: asdict(recipe) for role, recipe in RECIPES.items()}
    with fetch.lock("synthetic"):
        if (folder / RECIPE_FILE).is_file() and read_json(folder / RECIPE_FILE) == recipes:
            return
        shutil.rmtree(folder, ignore_errors=True)
        with tqdm(desc="train the pair", unit="batch") as bar:

            def show(done: int, total: int) -> None:
                bar.total = total
                bar.update(done - bar.n)

            train_pair(folder, progress=show, recipes=RECIPES)
        write_json(folder / RECIPE_FILE, recipes)


def train_pair(
    folder: Path | str, seed: int = 0, progress: Progress | None = None, recipes: dict[str, Recipe] = RECIPES
) -> dict[str, Path]:
    """Train and save `folder`/ROLE for each role of `recipes`; returns the folders by role.

    All at once, a core each. `UserError` when one of them exists already.
    """
    folders = {role: Path(folder) / role for role in recipes}
    for path in folders.values():
        if path.exists():
            raise UserError(f"{path} exists already; delete it to train that model again")
    report = progress or (lambda done, total: None)
    total = sum(r.steps for r in recipes.values())
    with workers(len(recipes)) as pool:
        making = {pool.submit(_make, folders[role], role, recipes, seed) for role in recipes}
        while making:
            finished, making = wait(making, timeout=0.5)
            for future in finished:
                future.result()
            report(pool.counted, total)
    return folders


def _make(folder: Path, role: str, recipes: dict[str, Recipe], seed: int) -> None:
    """In a worker: train one model of `recipes` and save it; counts the batches."""
    corpus = make_corpus(max(r.steps * r.batch for r in recipes.values()), seed)
    tokenizer = make_tokenizer(corpus[:TEXTS])
    recipe = recipes[role]
    model, left = _new(recipe, tokenizer, seed), recipe.steps
    for _ in _train(model, recipe, encode(tokenizer, corpus[: recipe.steps * recipe.batch]), seed):
        count()
        left -= 1
    _save(model, tokenizer, folder)
    count(left)  # it may have stopped earlier


def make_corpus(n: int, seed: int) -> list[tuple[str, list[str]]]:
    """`n` times (question, steps of a random solution): a seed's first training problems, each about `AGAIN` times."""
    rng = Random(f"world/{seed}")
    questions = [p.question for p in load("synthetic", "train", -(-n // AGAIN), seed)]
    return [(q, solution(_problem(q), rng)) for q in islice(cycle(questions), n)]


def _problem(question: str) -> Problem:
    found = parse(question)
    assert found is not None  # the data set is made of this language
    return found


def make_tokenizer(corpus: Iterable[tuple[str, Sequence[str]]]) -> Any:
    """A byte-level BPE tokenizer trained on the corpus: a number, or the words between two numbers, is one token."""
    from tokenizers import Regex, Tokenizer, decoders, pre_tokenizers, trainers
    from tokenizers.models import BPE
    from transformers import PreTrainedTokenizerFast

    inner = Tokenizer(BPE())
    inner.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(PIECES), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    inner.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=[USER, ASSISTANT, END],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    inner.train_from_iterator((text for question, steps in corpus for text in (question, *steps)), trainer)
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=inner,
        eos_token=END,
        extra_special_tokens=[USER, ASSISTANT],
        clean_up_tokenization_spaces=False,
    )
    tokenizer.chat_template = TEMPLATE
    return tokenizer


def encode(tokenizer: Any, corpus: Sequence[tuple[str, Sequence[str]]]) -> list[Row]:
    """Token ids as an engine makes them: the chat turn, then each step by itself."""
    texts = list(dict.fromkeys(text for question, steps in corpus for text in (question, *steps)))
    ids = dict(zip(texts, tokenizer(texts, add_special_tokens=False)["input_ids"], strict=True))
    user, assistant, end = tokenizer.convert_tokens_to_ids([USER, ASSISTANT, END])
    return [([user, *ids[q], assistant], [*chain.from_iterable(ids[s] for s in steps), end]) for q, steps in corpus]


def _new(recipe: Recipe, tokenizer: Any, seed: int) -> Any:
    """A model with random weights, fp32."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=recipe.hidden,
        intermediate_size=3 * recipe.hidden,
        num_hidden_layers=recipe.layers,
        num_attention_heads=recipe.heads,
        max_position_embeddings=1024,
        tie_word_embeddings=True,
        initializer_range=0.05,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return LlamaForCausalLM(config)


def _batches(rows: Sequence[Row], recipe: Recipe, seed: int) -> Iterator[tuple[Any, Any]]:
    """Token ids and labels `[batch, longest]`, padded on the right; the prompt and the padding are not learned."""
    import torch

    rng, size = Random(f"batches/{seed}"), recipe.batch
    for start in range(0, recipe.steps * size, BUCKET * size):
        bucket = sorted(rows[start : min(start + BUCKET * size, recipe.steps * size)], key=lambda r: sum(map(len, r)))
        firsts = list(range(0, len(bucket), size))
        rng.shuffle(firsts)
        for first in firsts:
            part = bucket[first : first + size]
            ids = torch.zeros(len(part), max(sum(map(len, row)) for row in part), dtype=torch.long)
            labels = torch.full_like(ids, IGNORED)
            for i, (prompt, answer) in enumerate(part):
                end = len(prompt) + len(answer)
                ids[i, :end] = torch.tensor(prompt + answer)
                labels[i, len(prompt) : end] = ids[i, len(prompt) : end]
            yield ids, labels


def _train(model: Any, recipe: Recipe, rows: Sequence[Row], seed: int) -> Iterator[float]:
    """Train on `rows`, each once at most; the loss of each step. Warm-up, then linear decay to 0."""
    import torch

    model.train()
    recent: deque[float] = deque(maxlen=RECENT)
    optimizer = torch.optim.AdamW(model.parameters(), lr=recipe.lr, betas=(0.9, 0.98), weight_decay=0.01, fused=True)
    warm = max(1, recipe.steps // 20)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda i: min((i + 1) / warm, (recipe.steps - i) / (recipe.steps - warm + 1))
    )
    for ids, labels in _batches(rows, recipe, seed):
        # no attention mask: the padding stands behind every token that is learned
        hidden = model.model(input_ids=ids[:, :-1], use_cache=False).last_hidden_state
        learned = labels[:, 1:] != IGNORED
        loss = torch.nn.functional.cross_entropy(model.lm_head(hidden[learned]), labels[:, 1:][learned])
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        schedule.step()
        recent.append(loss.item())
        yield recent[-1]
        if len(recent) == RECENT and sum(recent) / RECENT < recipe.stop:
            break
    model.eval()


def _save(model: Any, tokenizer: Any, folder: Path) -> None:
    """As a folder that is there whole or not at all."""
    import transformers

    transformers.utils.logging.disable_progress_bar()
    staging = folder.with_name(f".{folder.name}.partial")
    save_model(model, tokenizer, staging)
    staging.rename(folder)

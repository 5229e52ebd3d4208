"""How fast an engine decodes and reads on this machine, and the bound that follows for a draft/target pair.

    python benchmarks/engine.py [--engine llamacpp] [--draft NAME] [--target NAME] [--weights int8 bf16 fp32]
                                [--observe all last none] [--random]

--observe: whose layers' states are pooled meanwhile: all of them, the last one's, or none. With --random the two
models are random ones of the shape of Qwen2.5 0.5B and 1.5B (or 7B as the target): how fast a model runs does not
depend on its weights, and nothing has to be downloaded.

Prints medians of one run: milliseconds per decoded token after 200 tokens of context, per token of a 48-token step that
is read in one pass, and per token and row of a sampled batch of 48. Drafting can gain at most
decode(target) / (decode(draft) + read(target)), reached when every step is accepted.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

import torch

from semspec.engine import load
from semspec.engine.base import Sampling, Segment, never
from semspec.engine.local import LocalEngine
from semspec.engine.transformers import TransformersEngine, placed
from semspec.provenance import machine
from semspec.schema import Engine as EngineSettings


def median_ms(run: Callable[[], None], repeats: int) -> float:
    times = []
    for _ in range(repeats):
        started = time.perf_counter()
        run()
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        times.append(1e3 * (time.perf_counter() - started))
    return statistics.median(times)


OBSERVE = {"all": lambda n: None, "last": lambda n: [n - 1], "none": lambda n: []}


def measure(engine: LocalEngine, repeats: int, observe: str) -> dict[str, float]:
    """Milliseconds per token: `decode`, `read`, `batch`."""
    engine.observe(OBSERVE[observe](engine.n_layers))
    engine.eos_ids = frozenset()  # every text is as long as it is divided by
    ids = torch.randint(100, 1000, (248,), generator=torch.Generator().manual_seed(0)).tolist()
    prompt, step = ids[:200], ids[200:]
    on_gpu = engine.device.type == "cuda"
    session = engine.session(prompt)
    session.generate(never, Sampling(), 4)  # warm-up

    def decode() -> None:
        session.rollback(len(session.generate(never, Sampling(), 8).tokens))

    def read() -> None:
        session.read([Segment("", tokens=step)])
        session.rollback(len(step))

    out = {"decode": median_ms(decode, repeats) / 8, "read": median_ms(read, repeats) / len(step)}

    def batch(tokens: int) -> float:
        sample = lambda: engine.sample_many([prompt[:16]], 48, never, Sampling(1.0), tokens, [0])  # noqa: E731
        return median_ms(sample, repeats if on_gpu else 1)  # type: ignore[arg-type]

    few = 4 if on_gpu else 2
    more = 36 if on_gpu else 6
    out["batch"] = (batch(more) - batch(few)) / (more - few) / 48  # the difference takes the prompt's own pass out
    return out


SHAPES = {  # hidden size, layers, heads, key/value heads, inner size, tied embeddings
    "0.5b": (896, 24, 14, 2, 4864, True),
    "1.5b": (1536, 28, 12, 2, 8960, True),
    "7b": (3584, 28, 28, 4, 18944, False),
}


def random_engine(size: str, weights: str) -> TransformersEngine:
    """A random model of one of `SHAPES`, with a vocabulary of 151,936."""
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM

    hidden, layers, heads, kv_heads, inner, tied = SHAPES[size]
    config = Qwen2Config(
        vocab_size=151_936,
        hidden_size=hidden,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=kv_heads,
        intermediate_size=inner,
        tie_word_embeddings=tied,
        eos_token_id=0,
    )
    device = "cuda" if torch.cuda.is_available() and weights != "int8" else "cpu"
    with torch.device(device):
        torch.set_default_dtype(torch.float32 if weights == "fp32" else torch.bfloat16)
        model = Qwen2ForCausalLM(config)
        torch.set_default_dtype(torch.float32)
    model.generation_config.eos_token_id = 0
    words = Tokenizer(WordLevel({"<eos>": 0, "x": 1}, unk_token="x"))
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=words, eos_token="<eos>")
    return TransformersEngine(placed(model, weights, device), tokenizer, f"random {size}")


def main() -> None:
    args = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    args.add_argument("--engine", default="transformers", choices=["transformers", "llamacpp"])
    args.add_argument("--draft", help="default qwen2.5-coder-0.5b-instruct; with --random 0.5b")
    args.add_argument("--target", help="default qwen2.5-coder-1.5b-instruct; with --random 1.5b")
    args.add_argument("--random", action="store_true", help=f"random weights; models are {', '.join(SHAPES)}")
    args.add_argument("--weights", nargs="+", default=["int8"], choices=["int8", "bf16", "fp32"])
    args.add_argument("--observe", nargs="+", default=["all"], choices=list(OBSERVE))
    args.add_argument("--threads", type=int, default=0, help="0 = every core")
    args.add_argument("--repeats", type=int, default=5)
    chosen = args.parse_args()
    names = {
        role: getattr(chosen, role) or (size if chosen.random else f"qwen2.5-coder-{size}-instruct")
        for role, size in (("draft", "0.5b"), ("target", "1.5b"))
    }
    if chosen.random and chosen.engine == "llamacpp":
        args.error("--random makes no GGUF file; leave out --engine llamacpp")
    where = torch.cuda.get_device_name() if torch.cuda.is_available() else torch.backends.cpu.get_cpu_capability()
    print(machine(), where)
    print(f"{'':50}{'decode':>10}{'read':>10}{'batch':>10}   ms per token")
    for weights in chosen.weights if chosen.engine == "transformers" else ["gguf"]:
        found = {}
        for role, name in names.items():
            own = {} if weights == "gguf" else {"weights": weights}
            settings = EngineSettings(kind=chosen.engine, threads=chosen.threads, **own)
            engine = random_engine(name, weights) if chosen.random else load(name, settings)
            for observe in chosen.observe:
                found[role, observe] = measured = measure(engine, chosen.repeats, observe)
                row = "".join(f"{measured[k]:10.2f}" for k in ("decode", "read", "batch"))
                print(f"{f'{name} {weights}, {observe}':50}{row}", flush=True)
            del engine
        for observe in chosen.observe:
            draft, target = found["draft", observe], found["target", observe]
            bound = target["decode"] / (draft["decode"] + target["read"])
            print(f"{f'bound of the speed-up, {weights}, {observe}':50}{bound:10.2f}x")


if __name__ == "__main__":
    main()

"""What a model thought of a step, token by token, and the few numbers that a predictor makes of it.

The words of a step may vary freely without a change of meaning; its numbers may not. So the statistics of the tokens
that hold digits are taken apart. Pure functions of arrays; knows nothing of models, steps or labels.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

STATISTICS = (
    "mean_logprob",
    "min_logprob",
    "sum_logprob",
    "mean_entropy",
    "n_tokens",
    "likeliest_share",  # of the tokens, how many are the model's own greedy choice
    "mean_gap",  # how much less likely a token is than the likeliest one, in nats
    "max_gap",
    "first_gap",
    "sum_logprob_numbers",  # 0 where there is no number
    "min_logprob_numbers",
    "mean_entropy_numbers",
    "max_gap_numbers",
    "n_number_tokens",
)


class Tokens(NamedTuple):
    """`[n_tokens]` each. Natural logarithms, of the model's distribution at temperature 1."""

    logprob: np.ndarray  # of the token itself
    entropy: np.ndarray  # of the distribution that it comes from
    top: np.ndarray  # log-probability of the likeliest token there
    number: np.ndarray  # bool: the token holds a digit


_NONE = np.empty(0, dtype=np.float32)
NOTHING = Tokens(_NONE, _NONE, _NONE, np.empty(0, dtype=bool))


def statistics(tokens: Tokens) -> np.ndarray:
    """fp32 `[len(STATISTICS)]` of one step of at least one token."""
    lp, gap = tokens.logprob, tokens.top - tokens.logprob
    at = tokens.number
    numbers = [lp[at].sum(), lp[at].min(), tokens.entropy[at].mean(), gap[at].max()] if at.any() else [0.0] * 4
    words = [lp.mean(), lp.min(), lp.sum(), tokens.entropy.mean(), len(lp)]
    gaps = [(gap <= 0).mean(), gap.mean(), gap.max(), gap[0]]
    return np.array([*words, *gaps, *numbers, at.sum()], dtype=np.float32)


def pack(steps: list[Tokens]) -> dict[str, np.ndarray]:
    """Tensors that hold the tokens of all steps end to end, and how many each has."""
    out = {f"token_{name}": np.concatenate([getattr(s, name) for s in steps]) for name in Tokens._fields}
    out = {k: v.astype(np.uint8 if v.dtype == bool else np.float32) for k, v in out.items()}
    return out | {"token_count": np.array([len(s.logprob) for s in steps], dtype=np.int64)}


def unpack(tensors: dict[str, np.ndarray]) -> list[Tokens]:
    """What `pack` was given, of tensors that may hold more."""
    ends = np.cumsum(tensors["token_count"])[:-1]
    parts = [np.split(tensors[f"token_{name}"], ends) for name in Tokens._fields]
    return [Tokens(a, b, c, d.astype(bool)) for a, b, c, d in zip(*parts, strict=True)]


def table(tensors: dict[str, np.ndarray]) -> np.ndarray:
    """fp32 `[steps, len(STATISTICS)]` of the steps that `pack` was given."""
    return np.stack([statistics(tokens) for tokens in unpack(tensors)])

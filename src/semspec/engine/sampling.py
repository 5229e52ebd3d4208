"""Drawing tokens, and what a model thought of the tokens it wrote or read. Pure tensor functions.

Nucleus sampling looks at the top k logits only: a full sort of a 150,000-word vocabulary would cost more than a small
model's whole step. Randomness comes in as uniform numbers, one a row, so a row's draw never depends on its neighbours.
"""

from __future__ import annotations

import numpy as np
import torch

from semspec.engine.base import Sampling

_ROWS = 64  # rows of logits turned into probabilities at a time on a GPU
_CACHED = 2**17  # numbers that a CPU's caches hold while they are gone through several times


def nucleus(logits: torch.Tensor, sampling: Sampling) -> tuple[torch.Tensor, torch.Tensor]:
    """What `draw` draws from, temperature above 0: tokens and weights `[rows, k]`, most likely first, 0 outside."""
    top, ids = logits.float().topk(min(sampling.top_k, logits.shape[-1]), dim=-1)
    p = torch.softmax(top / sampling.temperature, dim=-1)
    before = p.cumsum(dim=-1) - p  # mass of the more likely tokens; the first is always kept
    return ids, torch.where(before < sampling.top_p, p, 0.0)


def pick(ids: torch.Tensor, weights: torch.Tensor, uniforms: torch.Tensor) -> torch.Tensor:
    """Tokens `[rows]` drawn from `ids` in proportion to `weights` `[rows, k]`; `uniforms` `[rows]` in [0, 1)."""
    cumulative = weights.cumsum(dim=-1)
    target = uniforms.to(weights)[:, None] * cumulative[:, -1:]
    last = (weights > 0).long().cumsum(dim=-1).argmax(dim=-1, keepdim=True)  # a uniform may round up to 1
    index = torch.minimum((cumulative <= target).sum(dim=-1, keepdim=True), last)
    return ids.gather(1, index)[:, 0]


def draw(logits: torch.Tensor, sampling: Sampling, uniforms: torch.Tensor | None) -> torch.Tensor:
    """Next tokens `[rows]` from logits `[rows, vocab]`; `uniforms` `[rows]` in [0, 1), unused when greedy."""
    if sampling.temperature == 0:
        return logits.argmax(dim=-1)
    assert uniforms is not None
    return pick(*nucleus(logits, sampling), uniforms)


def verify(
    logits: torch.Tensor, sampling: Sampling, token: int, ids: np.ndarray, probs: np.ndarray, u: tuple[float, float]
) -> int:
    """The next token, given that `token` was drawn from `ids`, `probs` `[k]` (Leviathan et al. 2023, Algorithm 1).

    `token` itself with probability min(1, p / q), else one drawn from the rest of p that q does not cover; so the
    result is distributed as `draw` from `logits` `[vocab]`. u: two uniform numbers.
    """
    own, weight = nucleus(logits[None], sampling)
    p = (weight / weight.sum())[0].double()
    q = torch.zeros(logits.shape[-1], dtype=torch.float64)
    q[torch.from_numpy(ids)] = torch.from_numpy(probs.astype(np.float64))
    q = q.to(p.device)
    mine = float(p[own[0] == token].sum())
    if u[0] * float(q[token]) < mine:
        return token
    rest = (p - q[own[0]]).clamp_min(0)
    if not float(rest.sum()) > 0:  # p and q are equal but for rounding
        rest = p
    return int(pick(own, rest[None], torch.tensor([u[1]]))[0])


def score(logits: torch.Tensor, tokens: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Log-probability of each token, entropy of its distribution, log-probability of the likeliest token.

    Natural log, temperature 1. logits `[rows, vocab]`, tokens `[rows]` -> three fp32 `[rows]`.
    """
    out = torch.empty(3, len(logits), device=logits.device)
    at_once = max(1, _CACHED // logits.shape[-1]) if logits.device.type == "cpu" else _ROWS
    for i in range(0, len(logits), at_once):
        rows = logits[i : i + at_once].float()
        below = rows - rows.amax(dim=-1, keepdim=True)
        weights = below.exp()
        total = weights.sum(dim=-1)
        log_total = total.log()
        chosen = below.gather(1, tokens[i : i + at_once, None])[:, 0]
        entropy = log_total - weights.mul_(below).sum(dim=-1) / total
        out[:, i : i + at_once] = torch.stack([chosen - log_total, entropy, -log_total])
    return out[0], out[1], out[2]

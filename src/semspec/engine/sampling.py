"""Drawing tokens, and what a model thought of the tokens it wrote or read. Pure tensor functions.

Nucleus sampling looks at the top k logits only: a full sort of a 150,000-word vocabulary would cost more than a small
model's whole step. Randomness comes in as uniform numbers, one a row, so a row's draw never depends on its neighbours.
"""

from __future__ import annotations

import torch

from semspec.engine.base import Sampling

_ROWS = 64  # rows of logits turned into probabilities at a time


def draw(logits: torch.Tensor, sampling: Sampling, uniforms: torch.Tensor | None) -> torch.Tensor:
    """Next tokens `[rows]` from logits `[rows, vocab]`; `uniforms` `[rows]` in [0, 1), unused when greedy."""
    if sampling.temperature == 0:
        return logits.argmax(dim=-1)
    assert uniforms is not None
    top, ids = logits.float().topk(min(sampling.top_k, logits.shape[-1]), dim=-1)
    p = torch.softmax(top / sampling.temperature, dim=-1)
    before = p.cumsum(dim=-1) - p  # mass of the more likely tokens; the first is always kept
    kept = before < sampling.top_p
    p = torch.where(kept, p, 0.0)
    cumulative = p.cumsum(dim=-1)
    target = uniforms.to(p)[:, None] * cumulative[:, -1:]
    last = kept.sum(dim=-1, keepdim=True) - 1  # a uniform may round up to 1
    index = torch.minimum((cumulative <= target).sum(dim=-1, keepdim=True), last)
    return ids.gather(1, index)[:, 0]


def logprob_and_entropy(logits: torch.Tensor, tokens: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Log-probability of each token and entropy of its distribution, natural log, temperature 1.

    logits `[rows, vocab]`, tokens `[rows]` -> two fp32 `[rows]`.
    """
    logprobs, entropies = [], []
    for i in range(0, len(logits), _ROWS):
        logp = torch.log_softmax(logits[i : i + _ROWS].float(), dim=-1)
        logprobs.append(logp.gather(1, tokens[i : i + _ROWS, None])[:, 0])
        entropies.append(-(logp.exp() * logp).sum(dim=-1))
    return torch.cat(logprobs), torch.cat(entropies)

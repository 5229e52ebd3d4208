"""The paper's feed-forward network (its section 4.2), from features `[n, d]` to a raw prediction `[n]`.

Trained here with torch and evaluated with numpy alone, so that a probe loads in no time. Knows nothing of roles, folds
or calibration.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np

BETAS = (0.9, 0.95)  # the paper's
ONE_THREAD_INPUTS = 2000


@dataclass
class Fit:
    """A trained network: `weights` (w1, b1, ... to the last layer's; w `[out, in]`), and how the training went."""

    weights: dict[str, np.ndarray]
    best_epoch: int
    history: list[dict[str, float]] = field(default_factory=list)


def forward(weights: dict[str, np.ndarray], x: np.ndarray) -> np.ndarray:
    """Raw prediction `[n]` in (0, 1) of features `[n, d]`, dropout off."""
    last = sum(name[0] == "w" and name[1:].isdecimal() for name in weights)
    for i in range(1, last):
        x = np.maximum(x @ weights[f"w{i}"].T + weights[f"b{i}"], 0)
    out = (x @ weights[f"w{last}"].T + weights[f"b{last}"])[:, 0].astype(np.float64)
    return 1 / (1 + np.exp(-np.clip(out, -60, 60)))


@contextmanager
def _one_thread(inputs: int) -> Iterator[None]:
    """Train a small network on one thread: several would spend each short step waiting for each other."""
    import torch

    before = torch.get_num_threads()
    if inputs <= ONE_THREAD_INPUTS:
        torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def fit_mlp(
    x: np.ndarray,
    y: np.ndarray,
    validation: tuple[np.ndarray, np.ndarray] | None,
    *,
    hidden_sizes: Sequence[int],
    dropout: float,
    lr: float,
    weight_decay: float,
    epochs: int,
    patience: int,
    batch_size: int,
    seed: int,
) -> Fit:
    """Train with AdamW on the squared error.

    With `validation` the weights of its best epoch are kept and training stops `patience` epochs after it;
    without, exactly `epochs` epochs are run.
    """
    import torch
    from torch import nn

    with torch.random.fork_rng(devices=[]), _one_thread(x.shape[1]):
        torch.manual_seed(seed)
        layers = [nn.Linear(n, m) for n, m in pairwise([x.shape[1], *hidden_sizes, 1])]
        between = [part for layer in layers[:-1] for part in (layer, nn.ReLU(), nn.Dropout(dropout))]
        net = nn.Sequential(*between, layers[-1])
        mean = float(np.clip(np.mean(y), 0.01, 0.99))
        nn.init.constant_(layers[-1].bias, float(np.log(mean / (1 - mean))))
        optimizer = torch.optim.AdamW(net.parameters(), lr=lr, betas=BETAS, weight_decay=weight_decay, fused=True)
        xs = torch.from_numpy(np.ascontiguousarray(x, dtype=np.float32))
        ys = torch.from_numpy(np.asarray(y, dtype=np.float32))
        if validation is not None:
            x_val, y_val = (torch.from_numpy(np.ascontiguousarray(v, dtype=np.float32)) for v in validation)

        def weights() -> dict[str, np.ndarray]:
            out = {f"w{i}": layer.weight for i, layer in enumerate(layers, 1)}
            out |= {f"b{i}": layer.bias for i, layer in enumerate(layers, 1)}
            return {k: v.detach().numpy().copy() for k, v in out.items()}

        best, best_epoch, best_loss, history = weights(), 0, np.inf, []
        for epoch in range(1, epochs + 1):
            net.train()
            total = 0.0
            for batch in torch.randperm(len(xs)).split(batch_size):
                loss = ((torch.sigmoid(net(xs[batch])[:, 0]) - ys[batch]) ** 2).mean()
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                total += float(loss.detach()) * len(batch)
            row = {"epoch": epoch, "train_loss": total / len(xs)}
            if validation is not None:
                net.eval()
                with torch.no_grad():
                    row["val_loss"] = float(((torch.sigmoid(net(x_val)[:, 0]) - y_val) ** 2).mean())
                if row["val_loss"] < best_loss:
                    best, best_epoch, best_loss = weights(), epoch, row["val_loss"]
            history.append(row)
            if validation is not None and epoch - best_epoch >= patience:
                break
    if validation is None:
        return Fit(weights(), epochs, history)
    return Fit(best, best_epoch, history)

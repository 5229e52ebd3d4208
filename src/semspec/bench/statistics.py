"""Bootstrap confidence intervals of a mean, seeded.

Resamples whole problems with replacement and takes percentiles of the resampled means. Paired comparisons
come in as one value per problem (a ratio or a difference), so that pairing needs no code of its own. Knows
nothing of methods.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

_CELLS = 4_000_000  # numbers held at once; keeps memory flat whatever the number of resamples


def interval(
    values: Sequence[float] | np.ndarray, resamples: int = 2000, seed: int = 0, level: float = 0.95
) -> tuple[float, float]:
    """Percentile bootstrap interval of the mean of `values` ([n], one per problem), as (low, high).

    One value, or values that are all equal, give an interval of width zero at that value. Raises `ValueError`
    when `values` is empty.
    """
    x = np.asarray(values, dtype=np.float64)
    if x.size == 0:
        raise ValueError("no values to resample")
    if np.all(x == x[0]):
        return float(x[0]), float(x[0])
    rng = np.random.default_rng(seed)
    means = np.empty(resamples)
    rows = max(1, _CELLS // x.size)
    for start in range(0, resamples, rows):
        stop = min(start + rows, resamples)
        means[start:stop] = x[rng.integers(0, x.size, (stop - start, x.size))].mean(axis=1)
    low, high = np.quantile(means, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)

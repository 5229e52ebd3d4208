"""Bootstrap confidence intervals of a mean or of a ratio of sums, seeded.

Resamples whole problems with replacement and takes percentiles. Paired comparisons come in as one value per problem (a
ratio or a difference), or as two columns over the same problems. Knows nothing of methods.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

Values = Sequence[float] | np.ndarray
_CELLS = 4_000_000  # numbers held at once; keeps memory flat whatever the number of resamples


def _resamples(n: int, resamples: int, seed: int) -> Iterator[np.ndarray]:
    """Indices `[some, n]` with replacement, `resamples` rows in all."""
    rng = np.random.default_rng(seed)
    rows = max(1, _CELLS // n)
    for start in range(0, resamples, rows):
        yield rng.integers(0, n, (min(rows, resamples - start), n))


def _percentiles(found: list[np.ndarray], level: float) -> tuple[float, float]:
    low, high = np.quantile(np.concatenate(found), [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)


def interval(values: Values, resamples: int = 2000, seed: int = 0, level: float = 0.95) -> tuple[float, float]:
    """Percentile bootstrap interval of the mean of `values` ([n], one per problem), as (low, high).

    One value, or values that are all equal, give an interval of width zero at that value. Raises `ValueError`
    when `values` is empty.
    """
    x = np.asarray(values, dtype=np.float64)
    if x.size == 0:
        raise ValueError("no values to resample")
    if np.all(x == x[0]):
        return float(x[0]), float(x[0])
    return _percentiles([x[i].mean(axis=1) for i in _resamples(x.size, resamples, seed)], level)


def ratio_interval(
    above: Values, below: Values, resamples: int = 2000, seed: int = 0, level: float = 0.95
) -> tuple[float, float]:
    """Percentile bootstrap interval of sum(above) / sum(below) over the same problems ([n] each, above 0)."""
    a, b = np.asarray(above, dtype=np.float64), np.asarray(below, dtype=np.float64)
    if a.size == 0 or a.size != b.size:
        raise ValueError("a ratio needs the same problems above and below, and at least one")
    found = [a[i].sum(axis=1) / b[i].sum(axis=1) for i in _resamples(a.size, resamples, seed)]
    return _percentiles(found, level)

"""The comparison: runs methods on problems, and turns the rows into metrics with intervals."""

from semspec.bench.metrics import METRICS, Metric, summarize
from semspec.bench.runner import answer_seed, run
from semspec.bench.statistics import interval

__all__ = ["METRICS", "Metric", "answer_seed", "interval", "run", "summarize"]

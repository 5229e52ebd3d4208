"""Probes: from a model's reading of a step to the semantic probability of that step under that model.

A reading is the pooled hidden state of every decoder layer and five token statistics. `Probe` is the trained
artefact, `training.train_stage` makes it. The package knows nothing of language models, engines or decoding.
"""

from semspec.probe.probe import Probe

__all__ = ["Probe"]

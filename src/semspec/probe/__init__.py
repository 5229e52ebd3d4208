"""Probes: from a model's reading of a step to the semantic probability of that step under that model.

A reading is the pooled hidden state of every decoder layer and token statistics. `Probe` is the trained
artefact, `Joint` the one that predicts the decision from both models' readings; `training.train_stage` makes them.
The package knows nothing of language models, engines or decoding.
"""

from semspec.probe.joint import Joint
from semspec.probe.probe import Probe

__all__ = ["Joint", "Probe"]

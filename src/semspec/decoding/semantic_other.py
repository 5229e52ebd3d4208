"""`semantic` with other probes than the project's own: the paper's comparisons of predictors (its tables 1 and 2).

`semantic_last_hidden` judges by probes that see, of the hidden states, the last layer's alone; `semantic_cross_domain`
by probes that were trained on another kind of problems. The loop is `semantic`'s. Where the probes come from is the
caller's matter.
"""

from __future__ import annotations

from semspec.decoding.semantic import Semantic


class SemanticLastHidden(Semantic):
    """`Semantic` by the last layer's hidden states."""

    name = "semantic_last_hidden"


class SemanticCrossDomain(Semantic):
    """`Semantic` by probes of another domain."""

    name = "semantic_cross_domain"

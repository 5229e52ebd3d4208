"""Which weights, and from where: the catalogue, verified downloads, and the conversion to a loadable folder.

`ensure(name)` is all a consumer needs. Nothing here runs a model, and importing it loads no heavy library.
"""

from semspec.models.catalogue import CATALOGUE, Entry
from semspec.models.fetch import home
from semspec.models.store import (
    TRAINED,
    check_name,
    describe,
    ensure,
    gguf,
    installed,
    layers,
    mending,
    pull,
    verify,
)

__all__ = [
    "CATALOGUE",
    "TRAINED",
    "Entry",
    "check_name",
    "describe",
    "ensure",
    "gguf",
    "home",
    "installed",
    "layers",
    "mending",
    "pull",
    "verify",
]

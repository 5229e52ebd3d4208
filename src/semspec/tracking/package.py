"""A bundle as an MLflow model: code and safetensors, with its signature, an example of its input and what it needs.

It loads with pickle refused, in a process that has nothing but the listed packages, because the package's own source
travels with it (pyfunc_model.py is its "model from code").
"""

from __future__ import annotations

import shutil
import warnings
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

import semspec

if TYPE_CHECKING:
    import pandas as pd
    from mlflow.models import ModelSignature

REQUIREMENTS = ("mlflow", "numpy", "pandas", "pydantic", "ruamel.yaml", "safetensors")
DIGITS = 2  # of the example: a state is tens of thousands of numbers


def _requirements() -> list[str]:
    from importlib.metadata import version

    return [f"{name}=={version(name)}" for name in REQUIREMENTS]


def _signature() -> ModelSignature:
    from mlflow.models import ModelSignature
    from mlflow.types.schema import Array, ColSpec, DataType, Schema

    inputs = [
        ColSpec(DataType.string, "role"),
        ColSpec(Array(DataType.double), "hidden"),
        ColSpec(Array(DataType.double), "logprob"),
    ]
    return ModelSignature(inputs=Schema(inputs), outputs=Schema([ColSpec(DataType.double, "probability")]))


def example(bundle: Path) -> pd.DataFrame:
    """One row for `predict`: the mean of the draft's training states, rounded (the draft's are the smaller ones)."""
    import pandas as pd

    from semspec.engine.statistics import STATISTICS
    from semspec.probe import Probe

    probe = Probe.load(bundle / "probes" / "draft")
    hidden = np.zeros(probe.reading)
    if probe.layers:
        hidden[probe.layers] = probe.arrays["center"].reshape(len(probe.layers), -1)
    logprob = probe.arrays.get("logprob_center", np.zeros(len(STATISTICS)))
    row = {"role": "draft", "hidden": hidden.ravel().round(DIGITS).tolist(), "logprob": logprob.round(DIGITS).tolist()}
    return pd.DataFrame([row])


def save(bundle: Path, folder: Path) -> None:
    """Write the MLflow model of the bundle in `bundle` into `folder`, which must not exist yet."""
    import mlflow

    code = folder.parent / "pyfunc_model.py"
    shutil.copyfile(Path(__file__).with_name(code.name), code)  # MLflow writes down where it was
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        mlflow.pyfunc.save_model(
            path=str(folder),
            python_model=str(code),
            artifacts={"bundle": str(bundle)},
            code_paths=[str(Path(semspec.__file__).parent)],
            signature=_signature(),
            input_example=example(bundle),
            pip_requirements=_requirements(),
        )

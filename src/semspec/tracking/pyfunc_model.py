"""The registered model, as MLflow's "model from code": this file is copied into it and run when it is loaded.

It answers one question: which semantic probability has this step under that model? Input columns: `role`
("draft" or "target"), `hidden` (the pooled reading, layers * hidden size floats, layer by layer) and
`logprob` (floats, in the order of `semspec.engine.statistics.STATISTICS`). Output: one column,
`probability`. A server that runs whole answers reads the bundle among the model's artifacts instead.
"""

from pathlib import Path

import mlflow
import numpy as np
import pandas as pd


class SemanticProbability(mlflow.pyfunc.PythonModel):
    """Both probes behind one `predict`."""

    def load_context(self, context):
        """Read the probes (safetensors and JSON) from the bundle."""
        from semspec.probe.probe import Probe

        folder = Path(context.artifacts["bundle"]) / "probes"
        self.probes = {role: Probe.load(folder / role) for role in ("draft", "target")}

    def predict(self, context, model_input: pd.DataFrame, params=None) -> pd.DataFrame:
        """`[n]` probabilities in (0, 1], in row order; `ValueError` for a wrong role or length."""
        table = pd.DataFrame(model_input).reset_index(drop=True)
        out = np.full(len(table), np.nan)
        for role, rows in table.groupby("role"):
            if role not in self.probes:
                raise ValueError(f"role {role!r} is neither 'draft' nor 'target'")
            probe = self.probes[role]
            layers, width = probe.reading
            hidden = np.stack([np.asarray(h, np.float32) for h in rows["hidden"]])
            if hidden.shape[1] != layers * width:
                raise ValueError(f"the {role} probe needs {layers} x {width} hidden values, not {hidden.shape[1]}")
            logprob = np.stack([np.asarray(v, np.float32) for v in rows["logprob"]])
            statistics = len(probe.arrays.get("logprob_center", logprob[0]))
            if logprob.shape[1] != statistics:
                raise ValueError(f"the {role} probe needs {statistics} statistics, not {logprob.shape[1]}")
            out[rows.index] = probe.predict(hidden.reshape(-1, layers, width), logprob)
        return pd.DataFrame({"probability": out})


mlflow.models.set_model(SemanticProbability())

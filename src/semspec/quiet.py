"""What keeps Prefect, MLflow and DVC inside the project folder, silent and offline. Knows only their settings."""

import os
from pathlib import Path


def quiet(root: Path) -> None:
    """Set what keeps Prefect, MLflow and DVC inside `root` and off the network; a value the user set stays.

    Call before prefect or mlflow is imported.
    """
    defaults = {
        "PREFECT_HOME": str(root.resolve() / ".prefect"),
        "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
        "PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS": "120",
        "PREFECT_SERVER_UI_API_URL": "/api",
        "PREFECT_SERVER_UI_SHOW_PROMOTIONAL_CONTENT": "false",
        "DO_NOT_TRACK": "true",
        "MLFLOW_DISABLE_TELEMETRY": "true",
        "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false",
        "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
        "MLFLOW_ALLOW_PICKLE_DESERIALIZATION": "false",
        "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "3",  # 7 would be four minutes of silence where no server answers
        "DVC_NO_ANALYTICS": "true",
        "RAY_USAGE_STATS_ENABLED": "0",
    }
    if "PREFECT_API_URL" not in os.environ:
        defaults["PREFECT_SERVER_ALLOW_EPHEMERAL_MODE"] = "true"
    for name, value in defaults.items():
        os.environ.setdefault(name, value)

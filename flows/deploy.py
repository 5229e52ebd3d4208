"""What `semspec deploy` offers in Prefect's UI: one deployment for each flow of the table whose file is there."""

from pathlib import Path

from semspec import pipeline as library

ROOT = Path(__file__).resolve().parents[1]
library.quiet(ROOT)  # before prefect is imported

import prefect  # noqa: E402

FLOWS = {  # flows/NAME.py holds the flow function NAME
    "pipeline": "From models to report: what params.yaml says, with the form's changes. Runs what is out of date.",
    "bench": "A comparison of its own in results/NAME. Leaves params.yaml and the pipeline's results alone.",
    "tune": "A search for better parameters.",
}


def names() -> list[str]:
    """The flows that this copy of the project has."""
    return [name for name in FLOWS if (ROOT / library.FLOWS / f"{name}.py").exists()]


def serve() -> None:
    """Wait for runs until interrupted. One at a time: DVC locks the project, and two runs would slow each other."""
    flows = {name: getattr(library.load_flow(ROOT, name), name) for name in names()}
    deployments = [flow.to_deployment(name=name, description=FLOWS[name]) for name, flow in flows.items()]
    prefect.serve(*deployments, limit=1, print_starting_message=False)

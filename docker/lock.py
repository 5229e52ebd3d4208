"""Prints what the CPU image installs: the project's dependencies and theirs, at the versions of this environment.

    python docker/lock.py > docker/cpu/requirements.txt

Run it on Linux, in the environment in which the tests have passed, after pyproject.toml got other dependencies.
"""

import tomllib
from importlib.metadata import distribution
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

PROJECT = Path(__file__).resolve().parents[1] / "pyproject.toml"


def closure(wanted: list[str]) -> dict[str, str]:
    """{name: version} of all that the requirements bring, as it is installed here."""
    found: dict[str, str] = {}
    seen: set[tuple[str, frozenset[str]]] = set()
    todo = [Requirement(text) for text in wanted]
    while todo:
        requirement = todo.pop()
        name, extras = canonicalize_name(requirement.name), frozenset(requirement.extras)
        if (name, extras) in seen:
            continue
        seen.add((name, extras))
        installed = distribution(name)
        found[name] = installed.version.partition("+")[0]  # "2.13.0+cpu" is a build of 2.13.0
        for need in map(Requirement, installed.requires or []):
            if need.marker is None or any(need.marker.evaluate({"extra": e}) for e in extras | {""}):
                todo.append(need)
    return found


if __name__ == "__main__":
    wanted = tomllib.loads(PROJECT.read_text(encoding="utf-8"))["project"]["dependencies"]
    print("# Made by docker/lock.py.")
    for name, version in sorted(closure(wanted).items()):
        print(f"{name}=={version}")

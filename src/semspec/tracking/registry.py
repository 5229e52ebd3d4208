"""The registry of probes: one version for each distinct bundle, and the aliases that say which of them is in use.

    challenger   the last version that was registered, unless it became champion
    champion     the one to serve: it passed the gate (promotion.py)

The registered model remembers its former champions in a tag, so that the last promotion can be taken back. Knows
MLflow; what a bundle holds and when it is good enough is known elsewhere.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from semspec import config, files, provenance
from semspec.errors import UserError
from semspec.tracking import bundle as bundles
from semspec.tracking import card, evaluation, mlflow_log, package, promotion

if TYPE_CHECKING:
    from mlflow.entities import FileInfo
    from mlflow.entities.model_registry import ModelVersion

    from semspec.schema import Settings

CHAMPION = "champion"
CHALLENGER = "challenger"
DIGEST_TAG = "semspec.bundle"  # of a version: MD5 of its bundle
SCORE_TAG = "semspec.pass_at_1"
GATE_TAG = "semspec.gate"  # of a version: what the gate said; its presence says that registering it was finished
FORMER_TAG = "semspec.former"  # of the registered model: versions that were champion before, the last one last
MAX_TEXT = 5000  # MLflow's limit on a description


@dataclass(frozen=True)
class Outcome:
    """What became of a version: whether it is the champion, and why, in words."""

    name: str
    version: str
    champion: bool
    reason: str
    former: str | None = None

    def __str__(self) -> str:
        state = "is the champion" if self.champion else "is not the champion"
        return f"{self.name} version {self.version} {state}: {self.reason}"


def model_name(settings: Settings) -> str:
    """`registry.name`, else `semspec-DRAFT-TARGET` of letters, digits, dots and dashes only.

    Of a folder, its last part is its name.
    """
    if settings.registry.name:
        return settings.registry.name
    parts = [Path(name).name for name in (settings.models.draft, settings.models.target)]
    return "-".join(["semspec", *(re.sub(r"[^A-Za-z0-9.-]+", "-", p).strip("-") for p in parts)]).lower()


@contextmanager
def answering(uri: str) -> Iterator[None]:
    """Turn what MLflow raises into one line for people."""
    from mlflow.exceptions import MlflowException
    from requests.exceptions import RequestException

    try:
        yield
    except (MlflowException, RequestException) as e:
        why = next(iter(str(e).strip().splitlines()), type(e).__name__)[:200]
        said = config.without_secrets(f"the registry at {uri} gave no answer ({why})")
        raise UserError(f"{said}; start it, or set tracking.uri") from None


def listed(name: str, version: str, source: str, uri: str) -> list[FileInfo]:
    """The files of a version's bundle; `UserError` where there are none."""
    import mlflow

    found = mlflow.artifacts.list_artifacts(artifact_uri=f"{source}/artifacts/bundle", tracking_uri=uri)
    if not found:
        raise UserError(
            f"the files of version {version} of {name} can't be found at {source}; bring them back, or delete the "
            "version"
        )
    return list(found)


class Registry:
    """The registered model of one pair. Methods raise what MLflow raises, and `UserError` for a user's mistakes."""

    def __init__(self, root: Path, settings: Settings):
        self.root, self.settings = root, settings
        self.name, self.uri = model_name(settings), mlflow_log.uri(root, settings)
        self.client = mlflow_log.client(root, settings)

    # what is there

    def aliases(self) -> dict[str, str]:
        """{alias: version}."""
        return {a: str(v) for a, v in self.client.get_registered_model(self.name).aliases.items()}

    def champion(self) -> str | None:
        return self.aliases().get(CHAMPION)

    def exists(self) -> bool:
        return bool(self.client.search_registered_models(f"name = '{self.name}'"))

    def versions(self) -> list[dict[str, Any]]:
        """The versions, newest first: version, aliases, pass_at_1, gate, bundle, run_id, created (ms since 1970)."""
        if not self.exists():
            return []
        named = self.aliases()
        rows = [
            {
                "version": str(v.version),
                "aliases": sorted(a for a, to in named.items() if to == str(v.version)),
                "pass_at_1": float(v.tags[SCORE_TAG]) if SCORE_TAG in v.tags else None,
                "gate": v.tags.get(GATE_TAG),
                "bundle": v.tags.get(DIGEST_TAG),
                "run_id": v.run_id,
                "created": v.creation_timestamp,
            }
            for v in self.client.search_model_versions(f"name = '{self.name}'")
        ]
        return sorted(rows, key=lambda row: -int(row["version"]))

    def _evaluation(self, version: str) -> evaluation.Evaluation | None:
        """evaluation.json of a version's bundle; None where it has none. `UserError` where there is no bundle."""
        import mlflow

        source = self.client.get_model_version(self.name, version).source
        found = listed(self.name, version, str(source), self.uri)
        if not any(Path(f.path).name == evaluation.FILE for f in found):
            return None
        uri = f"{source}/artifacts/bundle/{evaluation.FILE}"
        with tempfile.TemporaryDirectory() as folder:
            path = mlflow.artifacts.download_artifacts(artifact_uri=uri, dst_path=folder, tracking_uri=self.uri)
            return dict(files.read_json(path))

    # what changes it

    def register(self, run_id: str) -> Outcome:
        """Register the present probes under the run and let them through the gate; a known bundle is left as it is."""
        with tempfile.TemporaryDirectory() as temporary:
            folder = Path(temporary) / "bundle"
            bundle = bundles.make_bundle(self.root, self.settings, folder)
            digest = bundles.md5(folder)
            known = self._find(digest)
            version = str(known.version) if known else self._create(run_id, folder, bundle, digest)
        if known and GATE_TAG in known.tags:
            said = f"registered before, and the gate said: {known.tags[GATE_TAG]}"
            return Outcome(self.name, version, version == self.champion(), said)
        self.client.set_registered_model_alias(self.name, CHALLENGER, version)
        return self.promote(version)

    def _find(self, digest: str) -> ModelVersion | None:
        if not self.exists():
            return None
        found = self.client.search_model_versions(f"name = '{self.name}'")
        return next((v for v in found if v.tags.get(DIGEST_TAG) == digest), None)

    def _create(self, run_id: str, folder: Path, bundle: dict[str, Any], digest: str) -> str:
        model = folder.parent / f"model-{digest[:12]}"  # a run may be found again with another bundle
        package.save(folder, model)
        self.client.log_artifacts(run_id, str(model), model.name)
        if not self.exists():
            what = "Semantic probability probes of a draft and a target model; each version has its model card."
            self.client.create_registered_model(self.name, description=what)
        tags = {
            DIGEST_TAG: digest,
            "semspec.profile": self.settings.profile,
            "semspec.params_sha256": provenance.params_sha256(self.settings),
        }
        score = bundle["metrics"].get("bench", {}).get(evaluation.METHOD, {}).get("pass_at_1")
        if score is not None:
            tags[SCORE_TAG] = str(score)
        text = (folder / card.FILE).read_text(encoding="utf-8")
        made = self.client.create_model_version(
            self.name,
            source=f"{self.client.get_run(run_id).info.artifact_uri}/{model.name}",
            run_id=run_id,
            tags=tags,
            description=text if len(text) <= MAX_TEXT else text[: MAX_TEXT - 1] + "…",
        )
        return str(made.version)

    def promote(self, version: str, force: bool = False) -> Outcome:
        """Make a version the champion if the gate lets it pass (`force`: whatever the gate says)."""
        champion = self.champion()
        if version == champion:
            self._crown(version)  # a killed promotion may have left it without the rest
            if GATE_TAG not in self.client.get_model_version(self.name, version).tags:
                self.client.set_model_version_tag(self.name, version, GATE_TAG, "passed: it was the champion before")
            return Outcome(self.name, version, True, "it was so before")
        new, old = self._evaluation(version), None
        if champion is not None:
            try:
                old = self._evaluation(champion)
            except UserError:  # what nobody can read is no reason to let another pass
                if not force:
                    raise
        verdict = promotion.judge(new, old, self.settings.registry, first=champion is None)
        passed = verdict.passed or force
        reason = verdict.reason if passed == verdict.passed else f"forced, although {verdict.reason}"
        against = f" (against version {champion})" if champion else ""
        said = f"{'passed' if passed else 'refused'}{against}: {reason}"
        if passed:
            if champion is not None:
                self._remember([*self._former(champion), champion])
            self._crown(version)
        self.client.set_model_version_tag(self.name, version, GATE_TAG, said)
        return Outcome(self.name, version, passed, reason, champion)

    def rollback(self) -> Outcome:
        """Give the alias back to the champion before this one; once more goes one further back."""
        left = self.champion()
        there = {row["version"] for row in self.versions()}
        former = [v for v in self._former(left) if v in there]  # a version may have been deleted
        if not former:
            raise UserError(f"{self.name} has no former champion to go back to; see `semspec registry list`")
        self._evaluation(former[-1])  # says so where its files are gone
        self._crown(former[-1])
        self._remember(former[:-1])
        return Outcome(self.name, former[-1], True, f"taken back from version {left}", left)

    def _crown(self, version: str) -> None:
        self.client.set_registered_model_alias(self.name, CHAMPION, version)
        if self.aliases().get(CHALLENGER) == version:
            self.client.delete_registered_model_alias(self.name, CHALLENGER)

    def _former(self, champion: str | None) -> list[str]:
        former = str(self.client.get_registered_model(self.name).tags.get(FORMER_TAG, "")).split()
        while former and former[-1] == champion:  # a killed promotion has remembered it, and not gone on
            former.pop()
        return former

    def _remember(self, former: list[str]) -> None:
        self.client.set_registered_model_tag(self.name, FORMER_TAG, " ".join(former[-100:]))

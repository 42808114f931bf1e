"""Optional packages: those that Tenuto uses if they are installed, and the extra that installs each. The policy, in one place:

- USED_BY names the parts of Tenuto that import such a package at module level, beside the plug-ins that pyproject.toml declares,
each of which may import those of the extra of its own name; no other part imports one of these parts at module level, so that
everything else works without the package.
- Everywhere else it is imported where it is used, by `needed`. If it is missing, the error says what cannot be imported and what
installs it.
- The presence of a package may decide what is offered. It never decides what is recorded.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

EXTRAS = {
    "torch": "torch",
    "tensorflow": "tensorflow",
    "keras": "tensorflow",
    "transformers": "huggingface",
    "lightning": "lightning",
    "slack_sdk": "notices",
    "aiosmtplib": "notices",
    "pagerduty": "notices",
    "httpx2": "notices",
    "authlib": "sso",
    "joserfc": "sso",
    "obstore": "cloud",
    "optuna": "search",
    "cmaes": "search",
    "matplotlib": "pictures",
    "plotille": "pictures",
    "mlflow": "mlflow",
    "wandb": "wandb",
    "pandas": "frames",
    "pyarrow": "frames",
    "apprise": "apprise",
    "docker": "docker",
    "kubernetes_asyncio": "kubernetes",
    "asyncssh": "ssh",
    "boto3": "aws",
    "botocore": "aws",
    "google.cloud.compute_v1": "gcp",
    "opentelemetry.exporter": "otlp",
}
"""Extra of `tenuto` that installs each package, as pyproject.toml declares it."""
USED_BY = {
    "tenuto.checking.model": ("torch",),
    "tenuto.pytorch": ("torch",),
    "tenuto.workers.pytorch": ("torch",),
    "tenuto.workers.keras": ("keras", "tensorflow", "torch"),
    "tenuto.workers.determined.pytorch": ("torch",),
    "tenuto.workers.determined.keras": ("keras", "tensorflow", "torch"),
    "tenuto.workers.integrations": ("torch", "transformers", "lightning"),
    "tenuto.kernel.storage.cloud": ("obstore",),
    "tenuto.services.gateway.notices.adapters.targets.mail": ("aiosmtplib",),
    "tenuto.services.gateway.notices.adapters.targets.pager": ("pagerduty", "httpx2"),
    "tenuto.services.gateway.notices.adapters.targets.slack": ("slack_sdk",),
    "tenuto.services.gateway.notices.adapters.targets.slack_blocks": ("slack_sdk",),
}
"""Packages that each of Tenuto's modules or packages imports at module level. The modules that users import (`tenuto.pytorch`
and its like) import these parts."""


class NotInstalled(ImportError):
    """A package cannot be imported. The text is the end of a sentence for the user, without its full stop."""


def needed(module: str) -> Any:
    """The module, which another package may bring if none of EXTRAS does. Raises NotInstalled if it, or something that it needs
    itself, cannot be imported."""
    try:
        return import_module(module)
    except ImportError as error:
        extra = next((extra for package, extra in EXTRAS.items() if f"{module}.".startswith(f"{package}.")), "")
        how = f": pip install 'tenuto[{extra}]'" if extra else " in this Python"
        raise NotInstalled(f"{module} cannot be imported ({error}); install it{how}") from error

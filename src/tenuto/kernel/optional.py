"""Packages that Tenuto uses where they are there, and how each comes. The policy, in one place:

- USED_BY names the parts of Tenuto that import such a package at once; nobody else imports one of these parts at once, so that
  without the package all the rest works.
- Anywhere else it is imported where it is used, by `needed`. Whoever lacks it is told what cannot be imported, and what installs
  it.
- Whether a package is there may decide what is offered. It never decides what is recorded.
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
    "obstore": "cloud",
    "optuna": "search",
    "cmaes": "search",
    "matplotlib": "pictures",
    "opentelemetry.exporter": "otlp",
}
"""Package -> the extra of `tenuto` that brings it, as pyproject.toml declares them."""
USED_BY = {
    "tenuto.workers.pytorch": ("torch",),
    "tenuto.workers.keras": ("keras", "tensorflow", "torch"),
    "tenuto.workers.integrations": ("torch", "transformers", "lightning"),
    "tenuto.kernel.storage.cloud": ("obstore",),
}
"""Of Tenuto's modules and packages. What users import of `tenuto` itself (`tenuto.pytorch` and its like) imports these parts."""


class NotInstalled(ImportError):
    """The text is the end of a sentence for the user, without its full stop."""


def needed(module: str) -> Any:
    """The module, of one of EXTRAS. Raises NotInstalled where it, or something that it needs itself, cannot be imported."""
    try:
        return import_module(module)
    except ImportError as error:
        extra = next(extra for package, extra in EXTRAS.items() if f"{module}.".startswith(f"{package}."))
        raise NotInstalled(f"{module} cannot be imported ({error}); install it: pip install 'tenuto[{extra}]'") from error

"""Secrets that a configuration names."""

from __future__ import annotations

from tenuto.kernel.secrets import Secrets
from tenuto.schemas.config import ExperimentConfig
from tenuto.schemas.config.errors import ConfigError, Problem
from tenuto.services.gateway.http.context import asking


async def with_owner(secrets: Secrets, config: ExperimentConfig) -> ExperimentConfig:
    """The configuration with its secrets as recorded: `user/name`. Raises ConfigError for secrets that the user lacks."""
    wanted = {f"secrets.{variable}": reference for variable, reference in config.environment.secrets.items()}
    if config.environment.registry_auth is not None:
        wanted["registry_auth"] = config.environment.registry_auth
    if not wanted:
        return config
    user = asking()
    known = {item.name for item in await secrets.names(user)}
    problems = []
    for field, reference in wanted.items():
        owner, _, name = reference.rpartition("/")
        if owner not in ("", user):
            why = f"{name} is {owner}'s secret; set your own with `tenuto secret set {name}`, and name it here"
            problems.append(Problem(f"environment.{field}", why))
        elif name not in known:
            why = f"you have no secret {name}; `tenuto secret set {name}` makes it"
            problems.append(Problem(f"environment.{field}", why))
    if problems:
        raise ConfigError(problems)
    own = {field: f"{user}/{reference.rpartition('/')[2]}" for field, reference in wanted.items()}
    recorded = {variable: own[f"secrets.{variable}"] for variable in config.environment.secrets}
    environment = config.environment.model_copy(update={"secrets": recorded, "registry_auth": own.get("registry_auth")})
    return config.model_copy(update={"environment": environment})

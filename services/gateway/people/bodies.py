"""Bodies of requests about people."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from tenuto.schemas.base import Model
from tenuto.schemas.events.request import USER_NAME_PATTERN, NewUser, TokenLabel
from tenuto.schemas.names import NAME_PATTERN

TOKEN_DAYS_MAX = 3_650
"""Longest life of a token: ten years."""
PASSWORD_CHARACTERS_MAX = 1_024
"""Longest body field: longer than any accepted password, so that a too long one is answered with a sentence."""
PermissionName = Annotated[str, Field(min_length=1, max_length=63)]
PERMISSIONS_MAX = 100


class NewUserBody(NewUser):
    expires_days: float | None = Field(default=None, ge=0, le=TOKEN_DAYS_MAX)
    """Life of its token. null: as the cluster's settings say. 0: it does not expire."""


class NewTokenBody(Model):
    label: TokenLabel = ""
    """Purpose of the token."""
    expires_days: float | None = Field(default=None, ge=0, le=TOKEN_DAYS_MAX)
    """Life of the token in days. null: as the cluster's settings say. 0: it does not expire, which only admins may ask for."""
    permissions: tuple[PermissionName, ...] | None = Field(default=None, min_length=1, max_length=PERMISSIONS_MAX)
    """Permissions that it is limited to, by names of `GET /permissions`. null: no limit but that of the token that makes it."""
    role: str | None = Field(default=None, min_length=1, max_length=63)
    """Role whose present permissions it is limited to, in place of `permissions`."""
    workspace: str | None = Field(default=None, pattern=NAME_PATTERN)
    """Workspace that it is limited to. null: no limit but that of the token that makes it."""


class LoginBody(Model):
    name: str = Field(pattern=USER_NAME_PATTERN)
    password: str = Field(min_length=1, max_length=PASSWORD_CHARACTERS_MAX)
    new_password: str | None = Field(default=None, min_length=1, max_length=PASSWORD_CHARACTERS_MAX)
    """The user's password from now on; all earlier sessions end. Needed if an admin has set the present one."""
    label: TokenLabel = ""
    """Name of the machine or program, for the list of the user's sessions."""
    cookie: bool = False
    """True: the session is kept in a cookie that no script reads, and the answer has no token. For browsers."""


class LinkBody(Model):
    code: str = Field(min_length=1, max_length=256)
    """Code of the link, made within the last minute and not used yet."""


class SsoTokenBody(Model):
    code: str = Field(min_length=1, max_length=256)
    """Code that the user's browser was shown."""
    verifier: str = Field(min_length=43, max_length=128)
    """Verifier whose S256 challenge the sign-in was begun with."""
    label: TokenLabel = ""
    """Name of the machine or program, for the list of the user's sessions."""


class PasswordBody(Model):
    password: str = Field(min_length=1, max_length=PASSWORD_CHARACTERS_MAX)
    """Password of at least 10 characters that is not easy to guess."""


class SecretBody(Model):
    value: str = Field(min_length=8, max_length=65_536)
    """Secret of at least 8 characters: a shorter one could not be hidden in logs without hiding words too."""

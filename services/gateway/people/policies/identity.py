"""User that an identity from a provider belongs to. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from tenuto.schemas.events.people import GROUP_CHARACTERS_MAX, GROUPS_MAX, SUBJECT_CHARACTERS_MAX
from tenuto.schemas.events.request import USER_NAME_PATTERN
from tenuto.schemas.text import unstorable, visible


class ProviderIdentity(NamedTuple):
    subject: str
    """Issuer and subject, which identify the user whatever the name."""
    name: str
    groups: tuple[str, ...]


class NoIdentity(Exception):
    """`str(error)` is one sentence for the user."""


def identity(claims: Mapping[str, Any], issuer: str, user_claim: str, groups_claim: str) -> ProviderIdentity:
    """Identity that the claims describe. Raises NoIdentity."""
    subject = f"{issuer} {claims.get('sub', '')}"
    if len(subject) > SUBJECT_CHARACTERS_MAX or unstorable(subject):
        raise NoIdentity("The provider's subject is too long, or no text.")
    given = claims.get(user_claim)
    name = given.lower() if isinstance(given, str) else ""
    if not re.fullmatch(USER_NAME_PATTERN, name):
        shown = "missing" if given is None else f"'{visible(str(given))[:80]}'"
        raise NoIdentity(
            f"The provider's claim {user_claim} is {shown}, but the name of a user is 1 to 63 small letters, digits, _, . or -, "
            "and begins with a letter: an operator names another claim (TENUTO_OIDC_USER_CLAIM)."
        )
    told = claims.get(groups_claim)
    groups = [told] if isinstance(told, str) else told if isinstance(told, list) else []
    kept = {item for item in groups if isinstance(item, str) and 0 < len(item) <= GROUP_CHARACTERS_MAX and not unstorable(item)}
    if len(kept) > GROUPS_MAX:
        raise NoIdentity(f"The provider names {len(kept)} groups, and {GROUPS_MAX} are the most: let it send those that matter.")
    return ProviderIdentity(subject, name, tuple(sorted(kept)))

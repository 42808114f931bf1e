"""Google's refusals, and what each means for those who asked. Its words are kept; what they may quote of a request is not."""

from __future__ import annotations

import re
from typing import Literal

from tenuto.schemas.text import visible
from tenuto.services.launcher.adapters.provisioners import ProvisionerError

Kind = Literal["capacity", "quota", "refused", "unreachable"]
WORDS_MAX = 300
QUOTED_MAX = 80
"""Longest value that Google quotes and that is shown: it quotes what it refuses, and a startup script has a token."""
_QUOTED = re.compile(rf"'[^']{{{QUOTED_MAX},}}'|\"[^\"]{{{QUOTED_MAX},}}\"")
CAPACITY = ("POOL_EXHAUSTED", "STOCKOUT", "RESOURCE_EXHAUSTED_IN_ZONE")
"""Parts of codes and reasons."""
QUOTA = ("QUOTA_EXCEEDED", "QUOTAEXCEEDED", "LIMIT_EXCEEDED", "LIMITEXCEEDED")
LATER = ("RATELIMITEXCEEDED", "RATE_LIMIT_EXCEEDED", "USERRATELIMITEXCEEDED", "RESOURCENOTREADY", "RESOURCE_NOT_READY")
"""Too many questions, or something else is being done with the same thing: nothing was done, and it may be asked again."""
NOT_READY = ("RESOURCENOTREADY", "RESOURCE_NOT_READY")


class ComputeEngineRefusal(Exception):
    """An answer that is no success, or an operation that failed."""

    def __init__(self, status: int, code: str, words: str) -> None:
        """`status`: as in HTTP; 0 if there is none. `code`: Google's own, such as ZONE_RESOURCE_POOL_EXHAUSTED."""
        super().__init__(f"{status} {code}: {words}")
        self.status, self.code, self.words = status, code, words

    def kind(self) -> Kind:
        code = self.code.upper()
        if any(part in code for part in LATER):
            return "unreachable"
        if any(part in code for part in CAPACITY):
            return "capacity"
        if any(part in code for part in QUOTA):
            return "quota"
        if self.status in (408, 409, 412, 425, 429) or self.status >= 500:
            return "unreachable"
        return "refused"

    @property
    def not_ready(self) -> bool:
        return any(part in self.code.upper() for part in NOT_READY)

    def error(self, doing: str, secret: str = "") -> ProvisionerError:
        """`secret`: a text that must not be shown."""
        words = self.words
        if secret and secret in words:
            words = ""
        said = shown(words).rstrip(".") or "it gives no reason"
        if self.status == 401:
            said = "the launcher's credentials are not valid there (status 401)"
        code = f" ({self.code})" if self.code and self.code not in said else ""
        return ProvisionerError(f"Google does not {doing}: {said}{code}.", self.kind())


class ComputeEngineUnreachable(Exception):
    """No answer; what was asked for may have been done. `str(error)` says why."""

    def error(self, doing: str) -> ProvisionerError:
        return ProvisionerError(f"Google cannot be asked to {doing}: {self}.", "unreachable")


class NoCredentials(Exception):
    """`str(error)` is a sentence for the user."""

    def error(self, doing: str) -> ProvisionerError:
        return ProvisionerError(str(self), "refused")


def shown(text: str) -> str:
    text = visible(_QUOTED.sub("'...'", " ".join(text.split())))
    return text if len(text) <= WORDS_MAX else text[: WORDS_MAX - 3] + "..."

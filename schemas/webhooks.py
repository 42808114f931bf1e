"""Settings of a webhook: triggers of its notices, experiments that they are about, and the target that they are sent to."""

from __future__ import annotations

from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, Discriminator, Field, Tag, model_validator

from tenuto.schemas.base import Model
from tenuto.schemas.names import NAME_PATTERN

WEBHOOK_NAME_PATTERN = r"^[a-z][a-z0-9_.-]{0,62}$"
TRIGGERS_MAX = 20
FILTER_VALUES_MAX = 100
GROUP_SECONDS_MAX = 24 * 3600.0
VALIDATIONS_MAX = 10_000
WAIT_SECONDS_MAX = 30 * 24 * 3600.0
Severity = Literal["info", "warning", "error"]
Word = Annotated[str, Field(min_length=1, max_length=256)]


class EventTrigger(Model):
    """Any event of these types."""

    on: Literal["event"] = "event"
    types: tuple[Word, ...] = Field(min_length=1, max_length=50)
    """Names of events, such as TrialFailed."""


class ExperimentTrigger(Model):
    """An experiment has ended in one of these states."""

    on: Literal["experiment"] = "experiment"
    states: tuple[Literal["completed", "failed", "canceled"], ...] = Field(min_length=1, max_length=3)
    """Any of these."""


class TrialTrigger(Model):
    """A trial has ended in one of these states."""

    on: Literal["trial"] = "trial"
    states: tuple[Literal["completed", "early_stopped", "failed", "canceled"], ...] = Field(min_length=1, max_length=4)
    """Any of these."""


class MetricTrigger(Model):
    """A validation metric of a trial goes beyond a value; again only after it was back. One that is no number is beyond any."""

    on: Literal["metric"] = "metric"
    metric: Word
    """Its name, as the trial reports it."""
    above: float | None = None
    """Upper limit of the metric. None: `below` is given."""
    below: float | None = None
    """Lower limit of the metric. None: `above` is given."""

    @model_validator(mode="after")
    def _one_limit(self) -> MetricTrigger:
        if (self.above is None) == (self.below is None):
            raise ValueError("give either above or below: the value beyond which the metric is worth a notice")
        return self


class StallTrigger(Model):
    """The best value of a trial's metric was not bettered by so many validations in a row; again only after it was."""

    on: Literal["stall"] = "stall"
    metric: str = Field(default="", max_length=256)
    """Empty: the one that the experiment's search compares."""
    smaller_is_better: bool | None = None
    """None: as the experiment's configuration says."""
    validations: int = Field(ge=1, le=VALIDATIONS_MAX)
    """So many in a row."""


class LogTrigger(Model):
    """A worker printed a line that matches one of its experiment's `log_policies`."""

    on: Literal["log"] = "log"
    contains: str = Field(default="", max_length=256)
    """Part of that line. Empty: any."""


class AgentLostTrigger(Model):
    on: Literal["agent_lost"] = "agent_lost"


class CheckpointDamagedTrigger(Model):
    """A run was to resume from a checkpoint that is not what was saved."""

    on: Literal["checkpoint_damaged"] = "checkpoint_damaged"


class StragglerTrigger(Model):
    """A rank of a trial is slow, and holds up the others."""

    on: Literal["straggler"] = "straggler"


class NoticeTrigger(Model):
    """Model code said something to people: `run.notify(...)`, `context.notify(...)`."""

    on: Literal["notice"] = "notice"
    levels: tuple[Severity, ...] = Field(default=("info", "warning", "error"), min_length=1, max_length=3)


class WaitTrigger(Model):
    """A trial has waited for slots for so long: since it was requested, lost its slots or was resumed. Told while it waits."""

    on: Literal["wait"] = "wait"
    seconds: float = Field(ge=1, le=WAIT_SECONDS_MAX)


Trigger = Annotated[
    EventTrigger
    | ExperimentTrigger
    | TrialTrigger
    | MetricTrigger
    | StallTrigger
    | LogTrigger
    | AgentLostTrigger
    | CheckpointDamagedTrigger
    | StragglerTrigger
    | NoticeTrigger
    | WaitTrigger,
    Field(discriminator="on"),
]


class Filters(Model):
    """Experiments that notices are about: each given filter must fit. Events of no experiment, such as a lost agent, pass."""

    experiments: tuple[Annotated[int, Field(ge=1, le=2**62)], ...] = Field(default=(), max_length=FILTER_VALUES_MAX)
    users: tuple[Word, ...] = Field(default=(), max_length=FILTER_VALUES_MAX)
    workspaces: tuple[Annotated[str, Field(pattern=NAME_PATTERN)], ...] = Field(default=(), max_length=FILTER_VALUES_MAX)
    labels: tuple[Word, ...] = Field(default=(), max_length=FILTER_VALUES_MAX)
    """The experiment has all of these."""


TargetKind = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_-]{0,31}$")]
"""Name of a plug-in of `tenuto.notice_targets`: http, slack, pagerduty, email, apprise, or another package's."""


def _has_host_and_port(url: str) -> str:
    """Returns the URL. A bracket without its other half, a port of 99999 and a host that no name server could be asked for match
    the pattern below, and fail where the URL is taken apart. Raises ValueError."""
    try:
        parts = urlsplit(url)
        host, port = (parts.hostname or "").encode("idna"), parts.port
    except ValueError:
        host, port = b"", None
    if not host or port == 0:
        raise ValueError("must have a host, and a port from 1 to 65535 if any, such as https://hooks.example.org:8443/tenuto")
    return url


Url = Annotated[str, Field(pattern=r"^https?://[^\s/?#@]+([/?#]\S*)?$", max_length=2_000), AfterValidator(_has_host_and_port)]
"""URL without user and password, which would be shown with it."""
SIGNING_SECRET_PATTERN = r"^whsec_[A-Za-z0-9+/]{32,88}={0,2}$"


class HttpTarget(Model):
    """Any receiver of signed HTTP by the Standard Webhooks convention."""

    kind: Literal["http"] = "http"
    url: Url
    secret: str | None = Field(default=None, pattern=SIGNING_SECRET_PATTERN)
    """`whsec_` and 24 to 64 bytes in base64. None: the gateway makes one, and shows it once."""


class SlackTarget(Model):
    """A channel of Slack: through an incoming webhook's address, or by a bot's token, which can update what it posted."""

    kind: Literal["slack"] = "slack"
    url: Url | None = None
    token: str | None = Field(default=None, pattern=r"^xox[a-z]-[A-Za-z0-9-]{8,255}$")
    channel: str | None = Field(default=None, min_length=1, max_length=80)
    """Id of the channel, such as C024BE91L; required with a token."""
    api_url: Url = "https://slack.com/api/"

    @model_validator(mode="after")
    def _one_way(self) -> SlackTarget:
        if (self.url is None) == (self.token is None):
            raise ValueError("give either url (of an incoming webhook) or token (of a bot)")
        if self.token is not None and self.channel is None:
            raise ValueError("a bot's token needs channel: the id of the channel to post to")
        return self


class PagerDutyTarget(Model):
    """An integration of a PagerDuty service (Events API v2)."""

    kind: Literal["pagerduty"] = "pagerduty"
    routing_key: str = Field(pattern=r"^[A-Za-z0-9]{32}$")
    api_url: Url = "https://events.pagerduty.com"
    """https://events.eu.pagerduty.com for accounts in the European region."""


MailAddress = Annotated[
    str, Field(pattern=r"^[A-Za-z0-9.!#$%&'*+/=?^_`{|}~-]{1,64}@[A-Za-z0-9]([A-Za-z0-9.-]{0,251}[A-Za-z0-9])?$")
]
"""Mail address without a display name, and in ASCII: accepted by every server."""
RECIPIENTS_MAX = 50


class MailTarget(Model):
    """E-mail through a server that takes mail of the user (SMTP submission)."""

    kind: Literal["email"] = "email"
    host: str = Field(pattern=r"^[A-Za-z0-9]([A-Za-z0-9.-]{0,251}[A-Za-z0-9])?$")
    port: int = Field(default=587, ge=1, le=65_535)
    """587 is usual with `starttls`, 465 with `tls`."""
    security: Literal["starttls", "tls", "none"] = "starttls"
    """`starttls`: encrypted after a greeting, or not sent at all; `tls`: encrypted from the first byte; `none`: not encrypted."""
    username: str | None = Field(default=None, min_length=1, max_length=256)
    password: str | None = Field(default=None, min_length=1, max_length=1_024)
    """Password of `username`, given with it. None: no login."""
    sender: MailAddress
    recipients: tuple[MailAddress, ...] = Field(min_length=1, max_length=RECIPIENTS_MAX)

    @model_validator(mode="after")
    def _login(self) -> MailTarget:
        if (self.username is None) != (self.password is None):
            raise ValueError("give username and password, or neither")
        if self.password is not None and self.security == "none":
            raise ValueError("a password is not sent readable: security must be starttls or tls")
        return self


class AppriseTarget(Model):
    """Any other service that apprise knows, by its own form of address (https://appriseit.com): `discord://...`, `tgram://...`."""

    kind: Literal["apprise"] = "apprise"
    url: str = Field(pattern=r"^[a-z][a-z0-9+.-]{0,31}://[^\s\x00-\x1f]+$", max_length=2_000)
    """Address with its tokens and passwords."""


SETTINGS_MAX = 64
SETTING_CHARACTERS_MAX = 16_384
"""Most characters of one setting; a certificate with its key has some 5,000."""
SettingName = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]{0,63}$")]
SettingText = Annotated[str, Field(max_length=SETTING_CHARACTERS_MAX)]


class PluginTarget(Model):
    """A target of another package. Its settings are checked by that package, which the gateway must have."""

    kind: TargetKind
    settings: dict[SettingName, SettingText | bool | int | float] = Field(default={}, max_length=SETTINGS_MAX)
    secrets: dict[SettingName, SettingText] = Field(default={}, max_length=SETTINGS_MAX, repr=False)
    """Settings that are never shown, such as tokens."""


_OWN = {"http", "slack", "pagerduty", "email", "apprise"}


def _form(value: Any) -> str:
    kind = value.get("kind") if isinstance(value, dict) else getattr(value, "kind", None)
    return kind if isinstance(kind, str) and kind in _OWN else "other"


Target = Annotated[
    Annotated[HttpTarget, Tag("http")]
    | Annotated[SlackTarget, Tag("slack")]
    | Annotated[PagerDutyTarget, Tag("pagerduty")]
    | Annotated[MailTarget, Tag("email")]
    | Annotated[AppriseTarget, Tag("apprise")]
    | Annotated[PluginTarget, Tag("other")],
    Discriminator(_form),
]

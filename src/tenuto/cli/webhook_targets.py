"""The target of `webhook create`, of its options and of what is asked for."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import typer

from tenuto.cli.errors import CliError

OPTIONS = {
    "http": {"url"},
    "slack": {"channel", "api_url"},
    "pagerduty": {"api_url"},
    "email": {"host", "port", "security", "username", "sender", "recipient"},
    "apprise": set[str](),
}
"""Options of `create` that are for one kind of target."""


def target_of(
    kind: str, options: dict[str, Any], own_secret: bool, settings: Sequence[str], ask: Sequence[str]
) -> dict[str, Any]:
    """Target as the gateway is told it. `options`: those of one kind only; None where not given. `settings` and `ask`: those of a
    plug-in's kind. Raises CliError."""
    if kind not in OPTIONS:
        return _plugin_target(kind, options, settings, ask)
    if settings or ask:
        raise CliError(f"--{'set' if settings else 'ask'} is not for a target of kind {kind}, which has options of its own.")
    given = {name for name, value in options.items() if value}
    wrong = sorted(given - OPTIONS[kind])
    if wrong:
        raise CliError(f"--{wrong[0].replace('_', '-')} is not for a target of kind {kind}: what {kind} needs is asked for.")
    target = {"kind": kind} | {name: options[name] for name in sorted(given & {"api_url", "channel", "url", "host", "port"})}
    if kind == "http":
        if options["url"] is None:
            raise CliError("--url is needed: the address of the receiver.")
        return target | ({"secret": asked("Secret (whsec_...)")} if own_secret else {})
    if kind == "pagerduty":
        return target | {"routing_key": asked("Integration key of the PagerDuty service")}
    if kind == "apprise":
        return target | {"url": asked("Address as apprise has it (discord://..., tgram://..., msteams://...)")}
    if kind == "email":
        return target | _mail(options)
    if options["channel"] is not None:
        return target | {"token": asked("Token of the Slack bot (xoxb-...)")}
    return target | {"url": asked("Address of the Slack incoming webhook")}


def _plugin_target(kind: str, options: dict[str, Any], settings: Sequence[str], ask: Sequence[str]) -> dict[str, Any]:
    """Target of a kind that another package has. Raises CliError."""
    if given := sorted(name for name, value in options.items() if value):
        raise CliError(
            f"--{given[0].replace('_', '-')} is not for a target of kind {kind}: give its settings by --set and --ask."
        )
    found = {}
    for item in settings:
        key, equals, found[key] = item.partition("=")
        if not equals:
            raise CliError(f"--set: {key!r} has no value; write --set KEY=VALUE.")
    if sys.stdin.isatty():
        secrets = {key: asked(key) for key in ask}
    else:
        lines = sys.stdin.read().splitlines() if ask else []
        if len(lines) != len(ask):
            raise CliError(f"Standard input has {len(lines)} lines, and should have one for each --ask: {', '.join(ask)}.")
        secrets = dict(zip(ask, lines, strict=True))
    return {"kind": kind, "settings": found, "secrets": secrets}


def _mail(options: dict[str, Any]) -> dict[str, Any]:
    for needed in ("host", "sender", "recipient"):
        if not options[needed]:
            raise CliError(f"--{needed} is needed: a server, a sender and at least one recipient.")
    found = {"sender": options["sender"], "recipients": options["recipient"], "security": options["security"] or "starttls"}
    if options["port"] is None:
        found["port"] = {"starttls": 587, "tls": 465, "none": 25}[found["security"]]
    if options["username"] is not None:
        found |= {"username": options["username"], "password": asked(f"Password of {options['username']}")}
    return found


def asked(what: str) -> str:
    value = str(typer.prompt(what, hide_input=True)) if sys.stdin.isatty() else sys.stdin.read().strip()
    if not value:
        raise CliError(f"There was nothing on standard input, which should have this: {what}.")
    return value

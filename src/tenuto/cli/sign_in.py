"""login, logout, whoami; user password."""

from __future__ import annotations

import os
import sys
from typing import Annotated, Any

import typer

from tenuto.cli.common import Json, client, talking_to
from tenuto.cli.errors import CliError
from tenuto.cli.say import say
from tenuto.cli.tokens import ends

Name = Annotated[str | None, typer.Argument(help="Your name (default: it is asked for).")]
Whose = Annotated[str | None, typer.Argument(help="Whose, for admins (default: your own).")]
LABEL_CHARACTERS_MAX = 100


def add_to(app: typer.Typer) -> None:
    app.command()(login)
    app.command()(logout)
    app.command()(whoami)


def login(
    context: typer.Context,
    name: Name = None,
    sso: Annotated[bool, typer.Option("--sso", help="Sign in at the cluster's provider of identities, in a browser.")] = False,
    browser: Annotated[bool, typer.Option(help="Open a browser, with --sso.")] = True,
) -> None:
    """Sign in with your password, or at a provider of identities. The session's token is kept for this cluster, in a file that
    only you can read."""
    from tenuto.client.target import Target

    target = Target.without_token(*(context.obj or (None, None)))
    if sso:
        from tenuto.cli.sso import code_and_verifier

        code, verifier = code_and_verifier(target.url, browser)
        _keep(target, talking_to(target).post("/sso/token", {"code": code, "verifier": verifier, "label": _label()}), "")
        return
    name = name or _asked_for("Name", hidden=False)
    _sign_in(target, name, _asked_for("Password"))


def logout(context: typer.Context) -> None:
    """End your session, and forget its token."""
    from tenuto.client import logins
    from tenuto.client.errors import Refused
    from tenuto.client.target import Target

    url = Target.without_token(*(context.obj or (None, None))).url
    token = logins.find(url)
    if not token:
        raise CliError(f"You are not signed in at {url}; `tenuto login` does that.")
    try:
        talking_to(Target(url, token, str(logins.file()), signed_in=True)).post("/logout")
    except Refused as error:  # it has ended already
        if error.status != 401:
            raise
    finally:
        logins.forget(url)
    say(f"You are signed out at {url}.")


def whoami(context: typer.Context, json: Json = False) -> None:
    """Show as whom you act."""
    from tenuto.cli.output import print_json

    user = client(context).get("/user")
    if json:
        print_json(user)
    else:
        say(f"{user['name']}, who may change {'everything' if user['admin'] else 'its own experiments'}")
        if user["token"] is not None:
            what = "session" if user["token"].get("session") else "token"
            say(f"with the {what} {user['token']['id']}, which ends {ends(user['token']['expires_us'])}")


def link(
    context: typer.Context, name: Annotated[str, typer.Argument(help="User whose name the provider of identities knows.")]
) -> None:
    """Let a user sign in at the provider of identities: the first who comes from there with this name is this user, for good."""
    client(context).put(f"/users/{name}/link", {})
    say(f"{name} is whoever next signs in as {name} at the provider of identities.")


def password(
    context: typer.Context,
    name: Whose = None,
    remove: Annotated[bool, typer.Option("--remove", help="Take the password away: its user has tokens only.")] = False,
) -> None:
    """Change your password, or set another user's: who has to choose an own one at the next sign-in. Passwords are asked for, or
    read from standard input, a line each."""
    rest = client(context)
    if remove and not name:
        raise CliError("Name the user whose password is taken away: `tenuto user password NAME --remove`.")
    if name and remove:
        rest.delete(f"/users/{name}/password")
        say(f"{name} has no password any more, and is signed out everywhere.")
    elif name:
        rest.put(f"/users/{name}/password", {"password": _chosen(f"Password of {name}")})
        say(f"The password of {name} is set: tell it to {name}, who has to choose another at `tenuto login {name}`.")
    else:
        me = str(rest.get("/user")["name"])
        _sign_in(rest.target, me, _asked_for("Present password"), _chosen("New password"))


def _sign_in(target: Any, name: str, given: str, new: str | None = None) -> None:
    from tenuto.client.errors import Refused
    from tenuto.client.target import Target

    body = {"name": name, "password": given, "label": _label()} | ({} if new is None else {"new_password": new})
    try:
        made = talking_to(Target(target.url, "", "")).post("/login", body)
    except Refused as error:
        if error.word != "password_change" or new is not None:
            raise
        say("Your password was set by an admin: choose your own.", file=sys.stderr)
        _sign_in(target, name, given, _chosen("New password"))
        return
    changed = "Your password is changed, and all earlier sessions have ended. " if new is not None else ""
    _keep(target, made, changed)


def _keep(target: Any, made: Any, changed: str) -> None:
    from tenuto.cli.output import when
    from tenuto.client import logins

    path = logins.keep(target.url, made["token"])
    until = "" if made["expires_us"] is None else f" until {when(made['expires_us'])}"
    say(f"{changed}You are signed in at {target.url} as {made['name']}{until}; {path} has the token.")
    if os.environ.get("TENUTO_TOKEN") or os.environ.get("TENUTO_TOKEN_FILE"):
        say("Note: TENUTO_TOKEN or TENUTO_TOKEN_FILE is set and goes first: unset it to act as this user.", file=sys.stderr)


def _chosen(what: str) -> str:
    chosen = _asked_for(what)
    if sys.stdin.isatty() and _asked_for("Once more") != chosen:
        raise CliError("The two differ: nothing was changed.")
    return chosen


def _asked_for(what: str, hidden: bool = True) -> str:
    """Never an argument, which others on this machine could see."""
    if sys.stdin.isatty():
        return str(typer.prompt(what, hide_input=hidden))
    line = sys.stdin.readline().rstrip("\r\n")
    if not line:
        raise CliError(f"{what}: there was no line for it on standard input.")
    return line


def _label() -> str:
    import socket

    return socket.gethostname()[:LABEL_CHARACTERS_MAX]

"""Cluster and token to use: the command line and programs find both in the same places."""

from __future__ import annotations

import os
import urllib.parse
from dataclasses import dataclass, field
from pathlib import Path

from tenuto.client import logins
from tenuto.client.errors import ClientError


@dataclass(frozen=True)
class Target:
    """Cluster to talk to: its address and a token."""

    url: str
    """Address of the cluster, without a slash at its end."""
    token: str = field(repr=False)
    """Token to send with each request; empty for a sign-in."""
    token_source: str
    """Place from which the token comes, for the message when it is refused."""
    signed_in: bool = False
    """True if the token is that of a session, begun with `tenuto login`."""

    @classmethod
    def find(cls, data_dir: str | None = None, url: str | None = None, token: str | None = None) -> Target:
        """Target at `url`, else TENUTO_URL; with `token`, else TENUTO_TOKEN or TENUTO_TOKEN_FILE, else that of `tenuto login` at
        this address; else the cluster on this machine, of `data_dir` (None: the one of the command line). Raises ClientError if
        there is neither an address nor a cluster on this machine, or the token cannot be read."""
        url = url or os.environ.get("TENUTO_URL")
        source = "the argument `token`" if token else "TENUTO_TOKEN"
        token = (token or os.environ.get("TENUTO_TOKEN", "")).strip()  # a file that was read by a shell ends with a line feed
        token_file = os.environ.get("TENUTO_TOKEN_FILE", "")
        if not url or not (token or token_file):
            from tenuto.embedded.files import Layout, read_state

            layout = Layout.of(data_dir)
            state = read_state(layout)
            if not url and (state is None or not layout.token.exists()):
                raise ClientError(
                    f"No cluster is up in {layout.root}: start one with `tenuto up`, or name one with --url or TENUTO_URL."
                )
            url = url or (state.url if state else "")
            if not (token or token_file) and (session := logins.find(url)):
                return cls(url.rstrip("/"), session, str(logins.file()), signed_in=True)
            token_file = token_file or str(layout.token)
        if not token:
            source = token_file
            try:
                token = Path(token_file).read_text().strip()
            except OSError as error:
                raise ClientError(
                    f"The token cannot be read from {token_file}: {error.strerror}; set TENUTO_TOKEN or TENUTO_TOKEN_FILE, or "
                    "sign in with `tenuto login`."
                ) from error
        return cls(url.rstrip("/"), token, source)

    @classmethod
    def without_token(cls, data_dir: str | None = None, url: str | None = None) -> Target:
        """Target for a sign-in, without a token, at `url`, else TENUTO_URL, else the cluster on this machine, of `data_dir`
        (None: the one of the command line). Raises ClientError if there is none."""
        url = url or os.environ.get("TENUTO_URL")
        if not url:
            url = cls.find(data_dir).url
        return cls(url.rstrip("/"), "", "")


@dataclass(frozen=True)
class Address:
    """A target's URL, taken apart."""

    secure: bool
    host: str
    port: int | None
    prefix: str

    @classmethod
    def of(cls, url: str) -> Address:
        """Raises ClientError."""
        try:
            parts = urllib.parse.urlsplit(url)
            port = parts.port
        except ValueError:
            parts, port = urllib.parse.urlsplit(""), None
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ClientError(f"{url!r} is not the URL of a cluster: it must look like http://127.0.0.1:8080.")
        return cls(parts.scheme == "https", parts.hostname, port, parts.path.rstrip("/"))

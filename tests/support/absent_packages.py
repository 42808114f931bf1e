"""Packages that this Python has, as if it lacked them."""

from __future__ import annotations

import sys

import pytest

from tenuto.kernel import plugins

GROUP = "tenuto.notice_targets"


def forget_target(monkeypatch: pytest.MonkeyPatch, kind: str, package: str) -> None:
    """Lets the target `kind` be imported anew, without `package`."""
    module = plugins.find(GROUP, kind).entry.module
    for name in [name for name in sys.modules if name == module]:
        monkeypatch.delitem(sys.modules, name)
    for name in [package, *(name for name in sys.modules if name.startswith(f"{package}."))]:
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.setattr(plugins, "load", plugins.load.__wrapped__)

"""Tokens of reports: what is none is refused, and breaks nothing."""

from __future__ import annotations

import pytest

from tenuto.kernel.report_tokens import ReportTokens


@pytest.mark.parametrize("token", ["", "0" * 64, "\udcff" * 64, "é" * 64, "\0"])
def test_what_is_no_token_does_not_fit(token: str) -> None:
    tokens = ReportTokens("key")
    assert tokens.fits(tokens.token("node", "1-1-1"), "node", "1-1-1")
    assert not tokens.fits(tokens.token("node", "1-1-2"), "node", "1-1-1")
    assert not tokens.fits(token, "node", "1-1-1")

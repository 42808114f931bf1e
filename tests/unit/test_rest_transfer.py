"""How answers travel: what a client accepts and knows, origins, and the page of the document."""

from __future__ import annotations

import base64
import hashlib
import re

import pytest

from tenuto.kernel.settings import SettingsError
from tenuto.services.gateway.http import reference_page
from tenuto.services.gateway.http.origins import origins
from tenuto.services.gateway.http.transfer import matches, takes_gzip
from tenuto.services.gateway.rest import openapi_document


@pytest.mark.parametrize(
    ("accepted", "takes"),
    [
        ("gzip", True),
        ("br, GZIP;q=0.5", True),
        ("*", True),
        ("", False),
        ("br", False),
        ("gzip;q=0", False),
        ("*;q=0", False),
        ("gzip;q=0, *", False),
        ("identity, *;q=0.1", True),
        ("gzip;q=x", False),
    ],
)
def test_gzip_is_sent_to_whom_takes_it(accepted: str, takes: bool) -> None:
    assert takes_gzip(accepted) is takes


@pytest.mark.parametrize(
    ("known", "same"),
    [('W/"a"', True), ('"a"', True), ('"b", W/"a"', True), ("*", True), ("", False), ('W/"b"', False), ("a", False)],
)
def test_tags_are_compared_weakly(known: str, same: bool) -> None:
    assert matches(known, 'W/"a"') is same


def test_origins_are_addresses() -> None:
    assert origins("") == ()
    assert origins("https://a.example, http://[::1]:8080") == ("https://a.example", "http://[::1]:8080")
    for wrong in ("a.example", "https://a.example/", "https://a.example/page", "null", "https://*.example", "ftp://a"):
        with pytest.raises(SettingsError, match="TENUTO_CORS_ORIGINS names"):
            origins(wrong)


def test_the_page_has_every_operation_and_schema_and_runs_nothing() -> None:
    document = openapi_document()
    page = reference_page.page(document)
    for path, operations in document["paths"].items():
        for method in operations:
            assert f'<span class="method">{method.upper()}</span><code>{path}</code>' in page
    linked = set(re.findall(r'href="#([^"]+)"', page))
    assert linked <= set(re.findall(r'id="([^"]+)"', page)), "no link leads nowhere"
    assert set(document["components"]["schemas"]) <= set(re.findall(r'<details id="([^"]+)"', page))
    assert not re.search(r"<script|javascript:|\son\w+=|(?:href|src)=.[a-z]+:|<img|<link|@import|url\(", page)
    [style] = re.findall(r"<style>(.*?)</style>", page, re.DOTALL)
    assert base64.b64encode(hashlib.sha256(style.encode()).digest()).decode() in reference_page.HEADERS["Content-Security-Policy"]


def test_the_page_shows_hostile_text_as_text() -> None:
    bad = "<script>alert(1)</script>"
    operation = {
        "tags": [bad], "description": bad, "parameters": [{"name": bad, "in": bad, "description": bad, "schema": {"type": bad}}],
        "requestBody": {"content": {bad: {"schema": {"enum": [bad]}}}},
        "responses": {"200": {"description": bad, "headers": {bad: {}}, "content": {bad: {"schema": {"$ref": f"x/{bad}"}}}}},
    }  # fmt: skip
    schemas = {bad: {"description": bad, "properties": {bad: {"description": bad}}}, "plain": {"x": bad}}
    document = {"info": {"title": bad, "version": bad, "description": bad}, "paths": {bad: {"get": operation}}}
    assert "<script" not in reference_page.page({**document, "components": {"schemas": schemas}})

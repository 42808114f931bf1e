"""Addresses that MLflow's clients print, such as `http://cluster:8080/mlflow/#/experiments/3/runs/3-1`: what follows `#` is read
by the browser alone, so a small page there leads on to ours."""

from __future__ import annotations

import base64
import hashlib

from starlette.responses import HTMLResponse, Response

ADDRESSES = frozenset({"/mlflow", "/mlflow/"})
SCRIPT = """
const [, experiment, , run] = location.hash.match(/^#\\/experiments\\/([0-9]+)(\\/runs\\/([0-9]+-[0-9]+))?/) || []
location.replace(run ? `/trials/${run}` : experiment ? `/experiments/${experiment}` : '/')
"""
HTML = f"""<!doctype html><title>Tenuto</title><p>This leads to the run on <a href="/">Tenuto's page</a>.<script>{SCRIPT}</script>
"""
_HASH = base64.b64encode(hashlib.sha256(SCRIPT.encode()).digest()).decode()
HEADERS = {
    "Content-Security-Policy": f"default-src 'none'; script-src 'sha256-{_HASH}'; base-uri 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
}


def page() -> Response:
    return HTMLResponse(HTML, headers=HEADERS)

"""The web page: files that the build made of `page/`, at the addresses that the page uses. All else is the REST door's."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from mimetypes import guess_type
from pathlib import Path

from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.responses import FileResponse, PlainTextResponse, Response
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Receive, Scope, Send

from tenuto.services.gateway.http.request_metrics import PAGE, ROUTE
from tenuto.services.gateway.http.transfer import takes_gzip

BUILT = Path(__file__).parents[1] / "page"
SHOWN = frozenset({"", "cluster", "compare", "events", "experiments", "new", "nodes", "queue", "trials"})
"""First parts of the addresses that the page shows; it reads the rest of the address itself (page/src/routes.tsx)."""
FILES = frozenset({"assets", "icon.svg"})
YEAR_SECONDS = 365 * 24 * 3600
POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "worker-src 'self'",  # the one that follows the log for all tabs
        "style-src 'self' 'unsafe-inline'",  # the components set positions and sizes as style attributes
        "img-src 'self' data:",  # the style sheet draws small marks of its own
        "font-src 'self'",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'self'",
        "frame-ancestors 'none'",
    )
)
"""Content-Security-Policy: nothing from elsewhere, no script but the page's own files, and no frame of any site."""
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
}
NOT_BUILT = (
    "Tenuto's page is not built in this checkout: run `make page`, then load this again. "
    "The command line shows the same: tenuto exp ls.\n"
)


class WebPage:
    """Answers the page's addresses; everything else goes on to `app`."""

    def __init__(self, app: ASGIApp, pages: Mapping[str, Callable[[], Response]], directory: Path = BUILT) -> None:
        """`pages`: small pages of other doors, by their addresses."""
        self._pages = pages
        self._app, self._directory = app, directory
        self._files = StaticFiles(directory=directory, check_dir=False)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        first = scope["path"].split("/")[1] if scope["type"] == "http" else None
        if first in SHOWN and scope["method"] in ("GET", "HEAD"):
            scope[ROUTE] = PAGE
            await self._index()(scope, receive, send)
        elif scope["type"] == "http" and scope["path"] in self._pages and scope["method"] in ("GET", "HEAD"):
            scope[ROUTE] = PAGE
            await self._pages[scope["path"]]()(scope, receive, send)
        elif first in FILES and scope["method"] in ("GET", "HEAD"):
            scope[ROUTE] = PAGE
            response = await self._file(scope)
            await response(scope, receive, send)
        else:
            await self._app(scope, receive, send)

    def _index(self) -> Response:
        index = self._directory / "index.html"
        if not index.is_file():
            return PlainTextResponse(NOT_BUILT, status_code=503, headers=HEADERS)
        # Its files carry their hash in their names; it names them, so it is asked for each time.
        return FileResponse(index, headers={**HEADERS, "Cache-Control": "no-cache"})

    async def _file(self, scope: Scope) -> Response:
        path = self._files.get_path(scope)
        packed = takes_gzip(Headers(scope=scope).get("accept-encoding", ""))
        try:
            response = await self._packed(path, scope) if packed else None
            if response is None:
                response = await self._files.get_response(path, scope)
        except (HTTPException, OSError):
            return PlainTextResponse("There is no such file.\n", status_code=404, headers=HEADERS)
        response.headers.update(HEADERS)
        response.headers["Vary"] = "Accept-Encoding"
        immutable = scope["path"].startswith("/assets/")
        response.headers["Cache-Control"] = f"public, max-age={YEAR_SECONDS}, immutable" if immutable else "no-cache"
        return response

    async def _packed(self, path: str, scope: Scope) -> Response | None:
        """The file as the build packed it; None where it did not."""
        try:
            response = await self._files.get_response(f"{path}.gz", scope)
        except HTTPException:
            return None
        response.headers["Content-Encoding"] = "gzip"
        response.headers["Content-Type"] = guess_type(path)[0] or "application/octet-stream"
        return response

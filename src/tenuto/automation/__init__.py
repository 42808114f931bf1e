"""Programs of users that react to the log: `tenuto automation run my_rules.py`. docs/automation.md shows how they are written."""

from tenuto.automation.app import App, Park
from tenuto.automation.events import Event
from tenuto.client import AsyncClient

__all__ = ["App", "AsyncClient", "Event", "Park"]

"""Notices sent outside. Owner: gateway. Stream: notice/<id>."""

from __future__ import annotations

from typing import ClassVar

from tenuto.schemas.events.registry import EventData, event


class Notice(EventData):
    OWNER: ClassVar[str] = "gateway"
    STREAM: ClassVar[str] = "notice"

    notice_id: str
    webhook_id: str

    def stream_key(self) -> str:
        return self.notice_id


@event("WebhookDelivered")
class WebhookDelivered(Notice):
    status_code: int
    attempts: int


@event("WebhookFailed")
class WebhookFailed(Notice):
    error: str
    attempts: int

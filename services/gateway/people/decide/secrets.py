"""The key of the secrets."""

from __future__ import annotations

from collections.abc import Sequence

from tenuto.kernel.decision_tables import decisions
from tenuto.schemas.events import EventData
from tenuto.schemas.events.request import SecretKeyChanged
from tenuto.services.gateway.people.commands import NoteSecretKey
from tenuto.services.gateway.rights.checks import check_admin
from tenuto.services.gateway.rights.state import PeopleState


def note_secret_key(state: PeopleState, command: NoteSecretKey) -> Sequence[EventData]:
    check_admin(state, command, "upkeep.admin")
    return [SecretKeyChanged(user=command.user, secrets=command.secrets, unreadable=command.unreadable)]


DECISIONS = decisions(note_secret_key)

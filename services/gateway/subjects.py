"""The subjects of the gateway, by what they bring to the door (contributing/subject.md)."""

from __future__ import annotations

from collections.abc import Sequence

from tenuto.services.gateway.automations import subject as automations
from tenuto.services.gateway.cluster import subject as cluster
from tenuto.services.gateway.experiments import subject as experiments
from tenuto.services.gateway.http.permissions import ROUTES
from tenuto.services.gateway.http.plugin_doors import find_doors
from tenuto.services.gateway.http.subject import Subject
from tenuto.services.gateway.log import subject as log
from tenuto.services.gateway.notices import subject as notices
from tenuto.services.gateway.people import subject as people
from tenuto.services.gateway.rights.permissions import Permissions
from tenuto.services.gateway.templates import subject as templates
from tenuto.services.gateway.trials import subject as trials

CORE: Sequence[Subject] = (
    experiments.SUBJECT,
    trials.SUBJECT,
    log.SUBJECT,
    cluster.SUBJECT,
    people.SUBJECT,
    templates.SUBJECT,
    notices.SUBJECT,
    automations.SUBJECT,
)
"""Subjects of the gateway, in the order of the OpenAPI document."""
SUBJECTS: Sequence[Subject] = (*CORE, *(door.subject for door in find_doors(own=True).values()))
"""All of Tenuto's own."""
NOT_NEEDED = frozenset({"automations"})
"""Names of subjects of CORE that no other needs."""


def permissions_of(subjects: Sequence[Subject]) -> Permissions:
    """The one table by which every request is judged: the rows of the subjects, joined."""
    return Permissions(ROUTES, *(subject.permissions for subject in subjects))

"""Determined's Python names, for any code in a worker."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tenuto.workers.harness.framework import Framework

if TYPE_CHECKING:
    from tenuto.schemas.assignments import Assignment
    from tenuto.workers.launch.gang import Gang


class Determined(Framework):
    def enter(self, assignment: Assignment, gang: Gang | None) -> None:
        from tenuto.workers.determined import naming

        naming.provide(assignment, gang)


FRAMEWORK = Determined()

"""All that is read of the views: the queries of every subject, over one pool of connections."""

from __future__ import annotations

from tenuto.services.gateway.experiments.queries.experiments import ExperimentQueries
from tenuto.services.gateway.log.queries.log import LogQueries


class Views(ExperimentQueries, LogQueries):
    """Each subject's door shows the part that is its own."""

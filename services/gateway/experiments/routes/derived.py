"""Experiments made from others: reproduced, varied, gone on with."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fastapi import APIRouter, Request, Response

from tenuto.kernel import telemetry
from tenuto.kernel.core import Refused
from tenuto.schemas.config.derive import OverrideError, dotted
from tenuto.schemas.config.errors import ConfigError, Problem
from tenuto.schemas.ids import experiment_of, trial_id
from tenuto.schemas.record import Origin
from tenuto.services.gateway.experiments.bodies import Submitted
from tenuto.services.gateway.experiments.commands import SubmitExperiment
from tenuto.services.gateway.experiments.door import Door, ExperimentsDoor
from tenuto.services.gateway.experiments.handling.comparing import comparing, difference_view
from tenuto.services.gateway.experiments.handling.deriving import Derived, Deriving
from tenuto.services.gateway.experiments.handling.paths import ExperimentId
from tenuto.services.gateway.experiments.handling.submitting import check_place, submitted
from tenuto.services.gateway.experiments.handling.warm_start import with_source
from tenuto.services.gateway.experiments.policies.causes import likely_causes
from tenuto.services.gateway.experiments.views import DeriveBody, ReproduceBody, ReproductionView
from tenuto.services.gateway.http.context import answer, asked, asking
from tenuto.services.gateway.http.paths import Key
from tenuto.services.gateway.http.shared_sentences import no_such
from tenuto.services.gateway.http.strict_json import StrictRoute
from tenuto.services.gateway.people.handling.secrets import with_owner
from tenuto.services.gateway.trials.adapters.records import Records
from tenuto.services.gateway.trials.handling.stores import check_store

router = APIRouter(tags=["experiments"], route_class=StrictRoute)


@router.post("/experiments/{experiment_id}/reproduce", status_code=201, response_model=Submitted)
async def reproduce(
    request: Request, door: Door, experiment_id: ExperimentId, body: ReproduceBody, idempotency_key: Key = ""
) -> Response:
    """Run one trial again from the record alone: its code, configuration, hyperparameters and seed."""
    derived = await _deriving(door, trust=body.trust).reproduction(experiment_id, body.trial_id)
    return await _submit(request, door, derived, idempotency_key, None)


@router.post("/experiments/{experiment_id}/fork", status_code=201, response_model=Submitted)
async def fork(
    request: Request, door: Door, experiment_id: ExperimentId, body: DeriveBody, idempotency_key: Key = ""
) -> Response:
    """Run an experiment again with the same code and seed, and with other settings."""
    try:
        derived = await _deriving(door).fork(experiment_id, body.overrides)
    except OverrideError as error:
        raise ConfigError([Problem(error.path, str(error))]) from error
    return await _submit(request, door, derived, idempotency_key, _origin(body.origin, body.overrides))


@router.post("/experiments/{experiment_id}/continue", status_code=201, response_model=Submitted)
async def go_on(
    request: Request, door: Door, experiment_id: ExperimentId, body: DeriveBody, idempotency_key: Key = ""
) -> Response:
    """Go on with an ended experiment from its trials' last checkpoints: longer, or with more trials."""
    try:
        derived = await _deriving(door, trust=body.trust).continuation(experiment_id, body.overrides)
    except OverrideError as error:
        raise ConfigError([Problem(error.path, str(error))]) from error
    return await _submit(request, door, derived, idempotency_key, _origin(body.origin, body.overrides))


@router.get("/experiments/{experiment_id}/reproduction", response_model=ReproductionView)
async def reproduction(door: Door, experiment_id: ExperimentId) -> Response:
    """Verdict on a reproduction: equal or not to the metrics and weights of the trial that it repeats, with the differences."""
    original_request = await Records(door.log).submitted(experiment_id)
    if original_request is None:
        raise Refused(no_such(f"experiment {experiment_id}"), "not_found")
    parent = original_request.parent
    if parent is None or parent.relation != "reproduction" or parent.trial_id is None:
        raise Refused(f"Experiment {experiment_id} reproduces no other; `tenuto diff` compares any two.", "invalid")
    await door.check_seen(experiment_of(parent.trial_id), f"trial {parent.trial_id}")
    await door.up_to_date()
    view = await door.views.experiment(experiment_id)
    own = trial_id(experiment_id, 1)
    original, repeated = await door.views.trial(parent.trial_id), await door.views.trial(own)
    compare = comparing(door)
    results = await compare.results(original, repeated)
    known = [value for value in (results.metrics_equal, results.weights_equal) if value is not None]
    found = await compare.differences(parent.trial_id, own) if repeated is not None else []
    ended = view is not None and view.ended_us is not None
    equal = all(known) if known and (ended or not all(known)) else None
    config = view.config if view is not None else {}
    body = ReproductionView(
        experiment_id=experiment_id,
        trial_id=own,
        reproduces=parent.trial_id,
        ended=ended,
        equal=equal,
        results=results,
        differences=tuple(map(difference_view, found)),
        causes=likely_causes(found, original, repeated, config) if equal is False else (),
    )
    return answer(body)


def _deriving(door: ExperimentsDoor, *, trust: bool = False) -> Deriving:
    return Deriving(Records(door.log), door.views, comparing(door), door.contexts, asking(), door.state.owner, trust=trust)


def _origin(origin: Origin | None, overrides: Mapping[str, Any]) -> Origin:
    return (origin or Origin()).model_copy(update={"overrides": dotted(overrides)})


async def _submit(
    request: Request, door: ExperimentsDoor, derived: Derived, idempotency_key: str, origin: Origin | None
) -> Response:
    check_place(door, derived.config)
    await check_store(door, derived.config)
    config = await with_owner(door.secrets, await with_source(door, derived.config))
    with telemetry.span("gateway submit", parent=request.headers.get("traceparent", "")) as trace:
        command = SubmitExperiment(
            **asked(door, idempotency_key),
            config=config,
            seed=door.clock.new_seed() if derived.seed is None else derived.seed,
            context_hash=derived.context_hash,
            context_size_bytes=derived.context_size_bytes,
            trace=trace,
            origin=origin,
            parent=derived.parent,
        )
        return await submitted(door, command)

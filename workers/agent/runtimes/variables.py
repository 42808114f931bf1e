"""Environment variables by which a worker learns of its run, with any runtime."""

from __future__ import annotations

from tenuto.workers.agent.local_ranks import is_gang, rank_on
from tenuto.workers.agent.node import LOOPBACK, AgentNode
from tenuto.workers.agent.runtimes.runtime import Work
from tenuto.workers.launch.layout import GANG_VARIABLE, GangPart, gang_agents
from tenuto.workers.launch.token import TOKEN_VARIABLE


def worker_variables(
    work: Work, node: AgentNode, *, address: str, directory: str, error_file: str, command: tuple[str, ...]
) -> dict[str, str]:
    """Variables of a run's worker. `address`: of the agent, as gRPC names it. `directory`, `error_file`: the run's own.
    `command`: of a gang's rank that starts cold. All paths are as the worker sees them: in a container they may differ."""
    assignment = work.assignment
    told = {
        "TENUTO_AGENT_ADDRESS": address,
        "TENUTO_ALLOCATION_ID": work.allocation_id,
        TOKEN_VARIABLE: work.token,
        "TENUTO_RANK": str(rank_on(assignment, node.agent_id)),
        "TENUTO_ERROR_FILE": error_file,
    }
    if is_gang(assignment):
        told[GANG_VARIABLE] = gang_part(work, node, directory, command).to_json()
    if assignment.trace:
        told["TRACEPARENT"] = assignment.trace
    return told


def gang_part(work: Work, node: AgentNode, directory: str, command: tuple[str, ...]) -> GangPart:
    assignment = work.assignment
    alone = len(assignment.slots) == 1
    address, interface = LOOPBACK if alone else (node.address, node.interface)
    return GangPart(
        allocation_id=work.allocation_id,
        agents=gang_agents(assignment.slots),
        agent_index=next(index for index, part in enumerate(assignment.slots) if part.agent_id == node.agent_id),
        directory=directory,
        address=address,
        interface=interface,
        network="" if alone else node.network,
        command=command,
        secret=assignment.gang_secret,
        progress_seconds_max=assignment.config.distributed.progress_seconds_max,
        link_seconds_max=assignment.config.distributed.link_seconds_max,
    )

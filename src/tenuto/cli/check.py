"""check: is this machine fit to train?"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from tenuto.cli.common import DataDir, Json, data_dir_of
from tenuto.cli.errors import CliError
from tenuto.cli.say import say

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tenuto.checking.findings import MachineFinding
    from tenuto.embedded.files import Layout

LEVEL_WIDTH = 9
SUBJECT_WIDTH = 16


def check(
    context: typer.Context,
    data_dir: DataDir = None,
    quick: Annotated[bool, typer.Option("--quick", help="Train some batches only: its times then say little.")] = False,
    training: Annotated[
        bool, typer.Option("--training/--no-training", help="Train on every kind of slot, kill, resume and compare.")
    ] = True,
    json: Json = False,
) -> None:
    """Find out whether this machine is fit to train: its parts, then a minute of training on every kind of slot, on a cluster of
    its own in a temporary directory. A cluster that is up is not touched."""
    from tenuto.checking.findings import exit_code
    from tenuto.cli.output import print_json
    from tenuto.embedded.files import Layout

    findings = []
    for finding in _findings(Layout.of(data_dir_of(context, data_dir)), training=training, quick=quick):
        findings.append(finding)
        if not json:
            _show(finding)
    problems = sum(1 for item in findings if item.level == "PROBLEM")
    if json:
        print_json({"ok": not problems, "findings": [vars(item) for item in findings]})
    if exit_code(findings):
        raise CliError(f"{problems} of {len(findings)} findings would keep training from going well.")
    if not json:
        say("Nothing was found that would keep training from going well.")


def _findings(layout: Layout, *, training: bool, quick: bool) -> Iterator[MachineFinding]:
    from tenuto.checking.facts import driver_facts, machine_facts, torch_facts
    from tenuto.checking.findings import MachineFinding
    from tenuto.checking.machine import judged, judged_devices
    from tenuto.checking.training import slots_here, trained
    from tenuto.workers.agent.slots import NoSlots

    yield from judged(machine_facts(layout))
    torch, driver = torch_facts(), driver_facts()
    yield from judged_devices(torch, driver)
    if not training:
        return
    if torch.missing or torch.error:
        yield MachineFinding("training", "not run", "it needs PyTorch")
        return
    if driver.error:
        yield MachineFinding("training", "not run", "the GPUs cannot be read")
        return
    try:
        slots = slots_here()
    except NoSlots as error:
        yield MachineFinding("training", "PROBLEM", str(error), "`tenuto up` would not start an agent.")
        return
    yield from trained(slots, quick=quick, report=_progress)


def _progress(line: str) -> None:
    say(f"... {line}", file=sys.stderr, flush=True)


def _show(finding: MachineFinding) -> None:
    say(f"{finding.level:<{LEVEL_WIDTH}}{finding.subject:<{SUBJECT_WIDTH}}{finding.found}", flush=True)
    if finding.advice:
        say(f"{'':<{LEVEL_WIDTH + SUBJECT_WIDTH}}{finding.advice}", flush=True)

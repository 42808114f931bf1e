"""`ssh_page_node.py POOL SECRETS` checks a pool of SSH hosts, starts a node there and ends it, and prints what it saw."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

from tenuto.schemas.provisioning import Provisioning
from tenuto.services.launcher.adapters.provisioners.ssh import SshProvisioner
from tests.support.provisioner_benches import order, until


async def main(pool: Path, secrets: Path) -> None:
    provisioning = Provisioning.model_validate_json(pool.read_text())
    made = SshProvisioner("cluster-1", "gpus", provisioning, secrets)
    found = await made.check()
    problems = [f"{finding.what}: {finding.problem}" for finding in found if finding.problem]
    hosts = [name for name in ("gpu1", "gpu2") if any(name in finding.what for finding in found)]
    await made.start([order("gpus-1")])
    [node] = await until(made, "running")
    phases = [node.phase]
    await made.stop(node)
    phases += [node.phase for node in await until(made, "ended")]
    await made.close()
    print(json.dumps({"problems": problems, "phases": phases, "hosts": hosts}))


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), Path(sys.argv[2])))

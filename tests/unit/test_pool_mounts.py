"""What a pool lets containers mount, from the record to the agent."""

from __future__ import annotations

from tenuto.schemas.config.environment import AllowedMount
from tenuto.schemas.events.provisioning import PoolMountsChanged
from tenuto.services.launcher.effects.assigning import assignments_of
from tests.support.launcher_driver import Driver


def test_an_agent_is_told_what_its_pool_lets_containers_mount() -> None:
    driver = Driver()
    driver.join()
    driver.grant()

    def told() -> tuple[AllowedMount, ...] | None:
        return assignments_of(driver.state, "a", 0).assignments[0].mounts_allowed

    assert told() is None
    data = (AllowedMount(path="/data"),)
    driver.event(PoolMountsChanged(pool="other", mounts=data))
    assert told() is None
    driver.event(PoolMountsChanged(pool="default", mounts=data))
    assert told() == data
    driver.event(PoolMountsChanged(pool="default", mounts=()))
    assert told() == ()
    driver.core.check(driver.state)
    driver.event(PoolMountsChanged(pool="default"))
    driver.event(PoolMountsChanged(pool="default"))
    assert (told(), len(driver.state.pool_mounts)) == (None, 1)

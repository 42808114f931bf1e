"""What is AWS's own among provisioners: what EC2 is asked for, in which zones, and what its answers mean."""

from __future__ import annotations

import asyncio
import base64
import logging
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tenuto.schemas.provisioning import NodeType, Provisioning
from tenuto.services.launcher.adapters.provisioners import ProvisionerError
from tenuto.services.launcher.adapters.provisioners import aws as module
from tenuto.services.launcher.adapters.provisioners.aws import AwsProvisioner, door, machines
from tests.support.ec2 import CREDENTIALS, REGION, Ec2, client, linux_image, running
from tests.support.provisioner_benches import POOL, SECRET, order

pytestmark = pytest.mark.xdist_group("provisioners")


@pytest.fixture
async def ec2(tmp_path: Path) -> AsyncIterator[Ec2]:
    (tmp_path / "aws").write_text(CREDENTIALS)
    async with running() as found:
        yield found


@pytest.fixture
def made(ec2: Ec2, tmp_path: Path) -> Any:
    """Makes a provisioner with these settings."""

    def make(pool: str = POOL, types: tuple[NodeType, ...] = (NodeType(),), **settings: str) -> AwsProvisioner:
        given = {
            "region": REGION, "endpoint_url": ec2.url, "credentials_file": "aws", "instance_type": "m5.large",
            "image": linux_image(), **settings,
        }  # fmt: skip
        provisioning = Provisioning(provisioner="aws", settings=given, node_types=types)
        return AwsProvisioner(ec2.cluster, pool, provisioning, tmp_path)

    return make


def subnets() -> list[tuple[str, str]]:
    """(subnet, zone) of the default network."""
    return [(item["SubnetId"], item["AvailabilityZone"]) for item in client().describe_subnets()["Subnets"]]


def groups() -> list[str]:
    return [item["GroupId"] for item in client().describe_security_groups()["SecurityGroups"]]


async def problems(provisioner: AwsProvisioner) -> str:
    found = await provisioner.check()
    return "\n".join(f"{finding.what}: {finding.problem}" for finding in found if finding.problem)


async def test_what_an_instance_is_asked_for_with(made: Any, ec2: Ec2) -> None:
    [group, *_] = groups()
    (subnet, _), *_ = subnets()
    client("iam").create_instance_profile(InstanceProfileName="training")
    provisioner = made(
        spot="true", spot_price_max="0.5", volume_gib="200", tags="team=vision,cost center=7", subnets=subnet,
        security_groups=group, iam_instance_profile="training", lifetime_hours="12", install="tenuto[torch]",
    )  # fmt: skip
    await provisioner.start([order()])
    [(instance_id, asked)] = ec2.requests.items()
    assert asked["InstanceMarketOptions.MarketType"] == "spot"
    assert asked["InstanceMarketOptions.SpotOptions.MaxPrice"] == "0.5"
    assert asked["InstanceMarketOptions.SpotOptions.InstanceInterruptionBehavior"] == "terminate"
    assert asked["InstanceInitiatedShutdownBehavior"] == "terminate"
    assert asked["MetadataOptions.HttpTokens"] == "required"
    assert asked["MetadataOptions.HttpPutResponseHopLimit"] == "1"
    assert asked["MetadataOptions.HttpProtocolIpv6"] == "disabled"
    assert asked["BlockDeviceMapping.1.Ebs.VolumeSize"] == "200"
    assert asked["SubnetId"] == subnet
    assert asked["SecurityGroupId.1"] == group
    assert asked["IamInstanceProfile.Name"] == "training"
    tags = ec2.tags(instance_id)
    assert tags.pop("tenuto:end-of-life").endswith("Z")
    own = {"Name": "gpus-1", "tenuto:cluster": ec2.cluster, "tenuto:pool": POOL, "tenuto:node": "gpus-1"}
    assert tags == {**own, "team": "vision", "cost center": "7"}
    script = base64.b64decode(asked["UserData"]).decode()
    assert "lifetime_seconds=43200\n" in script
    assert "install=('tenuto[torch]')\n" in script
    assert f"{SECRET}-gpus-1" in script
    assert SECRET not in " ".join(value for key, value in asked.items() if key != "UserData")
    [node] = await provisioner.nodes()
    assert node.provider_id == instance_id
    await provisioner.close()


async def test_zones_are_tried_in_order_and_a_group_stays_together(made: Any, ec2: Ec2) -> None:
    (first, _), (second, _), (third, _), *_ = subnets()
    provisioner = made(subnets=f"{first},{second},{third}")
    ec2.full = {first}
    await provisioner.start([order(f"{POOL}-{number}") for number in (1, 2, 3)])
    assert [asked["SubnetId"] for asked in ec2.requests.values()] == [second] * 3
    assert ec2.asked.count("RunInstances") == 4 + 2, "boto3 tries again what EC2 has no capacity for, once the first"
    ec2.full = {first, second, third}
    with pytest.raises(ProvisionerError) as caught:
        await provisioner.start([order(f"{POOL}-{number}") for number in (4, 5)])
    assert caught.value.kind == "capacity"
    assert "We currently do not have sufficient m5.large capacity" in str(caught.value)
    assert len(await provisioner.nodes()) == 3
    await provisioner.close()


async def test_zones_without_subnets(made: Any, ec2: Ec2) -> None:
    (_, first), (_, second), *_ = subnets()
    provisioner = made(zones=f"{first},{second}", placement_group="near")
    ec2.full = {first}
    await provisioner.start([order()])
    [asked] = ec2.requests.values()
    assert asked["Placement.AvailabilityZone"] == second
    assert asked["Placement.GroupName"] == "near"
    await provisioner.close()


async def test_an_instance_that_is_not_shown_yet_is_not_started_again(made: Any, ec2: Ec2) -> None:
    ec2.hidden_seconds = 3_600.0
    provisioner = made()
    await provisioner.start([order()])
    assert await provisioner.nodes() == []
    await provisioner.start([order(secret="another-token")])
    await made().start([order(secret="a-third-token")])
    assert len(ec2.requests) == 1
    ec2.hidden_seconds = 0.0
    [node] = await provisioner.nodes()
    assert node.phase == "running"
    await provisioner.close()


async def test_a_start_whose_answer_was_lost_is_one_start(made: Any, ec2: Ec2, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(door, "TRIES", 1)
    ec2.lost = {"RunInstances"}
    ec2.hidden_seconds = 3_600.0
    for _ in range(2):
        with pytest.raises(ProvisionerError) as caught:
            await made().start([order()])
        assert caught.value.kind == "unreachable"
        assert SECRET not in str(caught.value)
    assert len(ec2.requests) == 1
    ec2.hidden_seconds, ec2.lost = 0.0, set()
    await made().start([order()])
    assert len(ec2.requests) == 1


@pytest.mark.parametrize(
    ("code", "status", "kind"),
    [
        ("VcpuLimitExceeded", 400, "quota"), ("MaxSpotInstanceCountExceeded", 400, "quota"),
        ("InsufficientInstanceCapacity", 500, "capacity"), ("InsufficientFreeAddressesInSubnet", 400, "capacity"),
        ("SpotMaxPriceTooLow", 400, "capacity"), ("Unsupported", 400, "refused"), ("UnauthorizedOperation", 403, "refused"),
        ("InvalidParameterValue", 400, "refused"), ("AuthFailure", 401, "refused"),
        ("RequestLimitExceeded", 503, "unreachable"), ("InternalError", 500, "unreachable"), ("NeverHeardOf", 502, "unreachable"),
    ],
)  # fmt: skip
def test_what_an_error_of_ec2_means(code: str, status: int, kind: str) -> None:
    message = "No. Encoded authorization failure message: " + "x" * 900
    error = door.Ec2Refusal(code, message, status).error("start node gpus-1")
    assert error.kind == kind
    assert str(error) == f"EC2 does not start node gpus-1: No ({code})."


async def test_a_group_that_meets_a_quota_in_the_middle_is_taken_back(made: Any, ec2: Ec2) -> None:
    provisioner = made()
    await provisioner.start([order("gpus-9")])
    ec2.room = 3
    with pytest.raises(ProvisionerError) as caught:
        await provisioner.start([order(f"{POOL}-{number}") for number in (1, 2, 3, 9)])
    assert caught.value.kind == "capacity"
    assert {node.node_id: node.phase for node in await provisioner.nodes() if node.phase != "ended"} == {"gpus-9": "running"}
    await provisioner.close()


async def test_a_pool_is_seen_in_one_request_or_in_pages(made: Any, ec2: Ec2, monkeypatch: pytest.MonkeyPatch) -> None:
    provisioner = made("many")
    await provisioner.start([order(f"many-{number}") for number in range(7)])
    ec2.asked.clear()
    assert len(await provisioner.nodes()) == 7
    assert ec2.asked == ["DescribeInstances"]
    monkeypatch.setattr(module, "PAGE_INSTANCES", 5)
    ec2.asked.clear()
    assert len({node.node_id for node in await provisioner.nodes()}) == 7
    assert ec2.asked == ["DescribeInstances"] * 2
    monkeypatch.setattr(door, "PAGES_MAX", 1)
    with pytest.raises(ProvisionerError, match="more than 1 pages"):
        await provisioner.nodes()
    await provisioner.close()


async def test_names_that_look_like_patterns_mean_themselves(made: Any, ec2: Ec2) -> None:
    await made("gpus").start([order()])
    assert await made("gpu*").nodes() == []


async def test_last_words_are_asked_for_only_at_first(made: Any, ec2: Ec2, monkeypatch: pytest.MonkeyPatch) -> None:
    provisioner = made()
    await provisioner.start([order()])
    [instance_id] = ec2.requests
    ec2.consoles[instance_id] = "booting\nno space left on device\n\n"
    await ec2.lose(instance_id)
    [node] = await provisioner.nodes()
    assert (node.phase, node.detail) == ("ended", "no space left on device")
    monkeypatch.setattr(module, "WORDS_SECONDS", -5.0)
    ec2.asked.clear()
    [node] = await provisioner.nodes()
    assert node.detail == ""
    assert ec2.asked == ["DescribeInstances"]
    assert await provisioner.logs(node, 2) == "no space left on device\n\n"
    await provisioner.close()


def test_why_an_instance_ended() -> None:
    instance = {
        "InstanceId": "i-1", "State": {"Name": "terminated"}, "Tags": [{"Key": "tenuto:node", "Value": "gpus-1"}],
        "StateReason": {"Code": "Server.SpotInstanceTermination", "Message": "Spot instance termination"},
    }  # fmt: skip
    assert machines.node_of(instance, "bye").detail == "Spot instance termination: bye"
    for state in ("shutting-down", "stopping", "stopped", "unheard-of"):
        shown = machines.node_of({**instance, "State": {"Name": state}})
        assert (shown.phase, shown.detail) == ("running", state), "it may still cost something"


async def test_ending_what_is_gone_is_no_error(made: Any, ec2: Ec2) -> None:
    provisioner = made()
    await provisioner.start([order()])
    [node] = await provisioner.nodes()
    ec2.requests.clear()
    await provisioner.stop(node)
    assert await provisioner.logs(node, 5) == ""
    await provisioner.close()


async def test_a_boot_script_that_ec2_would_not_take(made: Any, ec2: Ec2) -> None:
    provisioner = made()
    with pytest.raises(ProvisionerError, match="EC2 takes 16384") as caught:
        await provisioner.start([order(secret="x" * 16_000)])
    assert caught.value.kind == "refused"
    assert ec2.requests == {}


async def test_keys_come_from_the_file_alone_and_are_never_told(
    made: Any, ec2: Ec2, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIAOTHER")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "other")
    with caplog.at_level(logging.DEBUG):
        provisioner = made()
        await provisioner.start([order()])
        found = provisioner._door()._session.get_credentials()
    assert found.access_key == "AKIATESTS"
    assert SECRET not in caplog.text
    assert "the-secret-key-of-the-tests" not in caplog.text
    await provisioner.close()
    for text in ("", "[other]\naws_access_key_id = the-secret-key\n", "the-secret-key"):
        (tmp_path / "aws").write_text(text)
        with pytest.raises(ProvisionerError, match="has no credentials for profile default") as caught:
            await made().nodes()
        assert "the-secret-key" not in str(caught.value)
    with pytest.raises(ProvisionerError, match="There is no file elsewhere") as caught:
        await made(credentials_file="elsewhere").nodes()
    assert caught.value.kind == "refused"
    assert "There is no file elsewhere" in await problems(made(credentials_file="elsewhere"))


async def test_calls_end_by_themselves(made: Any, ec2: Ec2, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(door, "ANSWER_SECONDS_MAX", 0.2)
    provisioner = made()
    ec2.faults.late, ec2.faults.late_seconds = 1.0, 1.5
    with pytest.raises(ProvisionerError, match="no answer within") as caught:
        await provisioner.nodes()
    assert caught.value.kind == "unreachable"
    await provisioner.close()


async def test_a_check_finds_what_is_missing(made: Any, ec2: Ec2) -> None:
    gpu = NodeType(name="gpu", slots=4, device="A100")
    eight = NodeType(name="eight", slots=4, device="A100", settings={"instance_type": "p4d.24xlarge", "zones": "us-east-1z"})
    arm = NodeType(name="arm", settings={"instance_type": "m6g.large", "subnets": "subnet-00000000"})
    small = NodeType(name="small", settings={"volume_gib": "1", "key_name": "none-such", "security_groups": "sg-00000000"})
    none = NodeType(name="none", settings={"instance_type": "m5.enormous"})
    ec2.errors["RunInstances"] = ("UnauthorizedOperation", "You are not authorized to perform this operation.")
    said = await problems(made(types=(gpu, eight, arm, small, none)))
    assert "It has 8 GPUs, but nodes of type eight are to have 4 slots" in said
    assert "It has no GPU, but nodes of type gpu are to have A100" in said
    assert "set an image of that architecture" in said
    assert "InvalidInstanceType" in said
    assert "It is not offered in us-east-1z" in said
    assert "InvalidSubnetID.NotFound" in said
    assert "InvalidGroup.NotFound" in said
    assert "InvalidKeyPair.NotFound" in said
    assert "volume_gib is 1" in said
    assert "Give the launcher the rights of docs/aws.md" in said
    missing, nameless = NodeType(settings={"image": "ami-00000000"}), NodeType(name="b", settings={"image": "ssm:/none/such"})
    said = await problems(made(types=(missing, nameless)))
    assert "InvalidAMIID" in said
    assert "ParameterNotFound" in said
    ec2.errors["DescribeInstances"] = ("AuthFailure", "AWS was not able to validate the provided access credentials")
    assert "EC2 does not list instances: AWS was not able to validate" in await problems(made())
    assert ec2.requests == {}


async def test_a_check_says_the_spot_price(made: Any, ec2: Ec2) -> None:
    item = "<item><instanceType>m5.large</instanceType><spotPrice>{}</spotPrice><availabilityZone>{}</availabilityZone></item>"
    items = item.format("0.041", "us-east-1b") + item.format("0.035", "us-east-1a")
    ec2.answers["DescribeSpotPriceHistory"] = (
        f"<DescribeSpotPriceHistoryResponse><spotPriceHistorySet>{items}</spotPriceHistorySet></DescribeSpotPriceHistoryResponse>"
    )
    found = await made(spot="true", types=(NodeType(cost_per_hour=0.04),)).check()
    [price] = [finding for finding in found if finding.what.startswith("spot price")]
    assert price.what == "spot price of m5.large: 0.035 in us-east-1a, 0.041 in us-east-1b; cost_per_hour says 0.04"
    assert price.problem == ""
    assert "none starts now" in await problems(made(spot="true", spot_price_max="0.01"))


async def test_an_image_by_its_parameter(made: Any, ec2: Ec2) -> None:
    name = "/aws/service/ami-amazon-linux-latest/al2023-ami-kernel-6.1-x86_64"
    image = client("ssm").get_parameter(Name=name)["Parameter"]["Value"]
    provisioner = made(image=f"ssm:{name}")
    await provisioner.start([order()])
    [asked] = ec2.requests.values()
    assert asked["ImageId"] == image
    await provisioner.close()


async def test_closing_waits_for_nothing(made: Any, ec2: Ec2) -> None:
    ec2.faults.late, ec2.faults.late_seconds = 1.0, 3.0
    provisioner = made()
    looking = asyncio.create_task(provisioner.nodes())
    await asyncio.sleep(0.2)
    async with asyncio.timeout(2):
        await provisioner.close()
    with pytest.raises((ProvisionerError, TimeoutError, asyncio.CancelledError)):
        await asyncio.wait_for(looking, 0.01)

"""`tenuto pool check` on AWS: what is there for nodes of a pool, and what is missing. Nothing is started.

Each type of nodes is shown to EC2 as a dry run, which is judged by the rights that a real start needs. What a dry run does not
look at (the image, the zones' offers, quotas, prices) is asked for; what the launcher may not ask is said.
"""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from datetime import UTC, datetime

from tenuto.schemas.provisioning import NodeType
from tenuto.schemas.text import visible
from tenuto.services.launcher.adapters.provisioners import Finding, Order
from tenuto.services.launcher.adapters.provisioners.aws import machines
from tenuto.services.launcher.adapters.provisioners.aws.door import Document, Ec2Client, Ec2Refusal, Ec2Unreachable, known_regions
from tenuto.services.launcher.adapters.provisioners.aws.quotas import codes_of
from tenuto.services.launcher.adapters.provisioners.aws.settings import MachineSettings

Kinds = Sequence[tuple[NodeType, MachineSettings]]
MAY_NOT = ("UnauthorizedOperation", "AccessDenied", "AccessDeniedException")
NOT_VALID = ("AuthFailure", "InvalidClientTokenId", "SignatureDoesNotMatch", "RequestExpired", "ExpiredToken")
PRODUCT = "Linux/UNIX"


def remedy(error: Ec2Refusal | Ec2Unreachable, region: str = "") -> str:
    """A sentence with a space before it; empty where only the error says what to do. `region`: of Amazon's own service."""
    if isinstance(error, Ec2Unreachable):
        unknown = region and region not in known_regions()
        return f" The installed boto3 knows no region {region}: set another one, unless it is newer." if unknown else ""
    if error.code in MAY_NOT:
        return " Give the launcher the rights of docs/aws.md."
    return " Put valid keys into the file of credentials_file." if error.code in NOT_VALID else ""


async def image_id(door: Ec2Client, image: str) -> str:
    """AMI of the setting. Raises Ec2Refusal and Ec2Unreachable."""
    name = image.removeprefix("ssm:")
    if name == image:
        return image
    found = await door.ask("get_parameter", service="ssm", Name=name)
    return str((found.get("Parameter") or {}).get("Value") or "")


async def findings(door: Ec2Client, cluster: str, pool: str, kinds: Kinds) -> list[Finding]:
    found = [await _who(door)]
    for node_type, settings in kinds:
        try:
            found += await _machine(door, node_type, settings)
            found += await _network(door, settings)
            found.append(await _dry_run(door, cluster, pool, node_type, settings))
        except Ec2Unreachable as error:
            return [*found, Finding("the remaining checks", f"They could not be made: {error}.")]
    found.append(Finding("rights to end instances and to read their console: they show when the first node ends"))
    return list(dict.fromkeys(found))


async def _who(door: Ec2Client) -> Finding:
    try:
        said = await door.ask("get_caller_identity", service="sts")
    except (Ec2Refusal, Ec2Unreachable) as error:
        return Finding(f"account: not seen ({type(error).__name__.lower()})")
    return Finding(f"account {said.get('Account', '?')}, as {str(said.get('Arn', '?'))[:150]}")


async def _machine(door: Ec2Client, node_type: NodeType, settings: MachineSettings) -> list[Finding]:
    """Its type and its image. Raises Ec2Unreachable."""
    what = f"type {settings.instance_type}"
    try:
        types = await door.ask("describe_instance_types", InstanceTypes=[settings.instance_type])
    except Ec2Refusal as error:
        if error.code in MAY_NOT:
            return [Finding(f"{what}: not seen, as the launcher may not describe types")]
        return [Finding(what, f"{error.error('know it')} Set another instance_type.")]
    shown = (types.get("InstanceTypes") or [{}])[0]
    found = [_slots(what, node_type, shown)]
    found.append(await _image(door, settings, (shown.get("ProcessorInfo") or {}).get("SupportedArchitectures") or []))
    found.append(await _zones(door, settings))
    found.append(await _quota(door, settings, int((shown.get("VCpuInfo") or {}).get("DefaultVCpus") or 0)))
    if settings.spot:
        found.append(await _price(door, node_type, settings))
    return found


def _slots(what: str, node_type: NodeType, shown: Document) -> Finding:
    gpus = (shown.get("GpuInfo") or {}).get("Gpus") or []
    count = sum(int(item.get("Count") or 0) for item in gpus)
    names = ", ".join(sorted({str(item.get("Name") or "?") for item in gpus}))
    processors = int((shown.get("VCpuInfo") or {}).get("DefaultVCpus") or 0)
    gpus_said = f"{count} GPU{'s' * (count != 1)}"
    what = f"{what}: {f'{gpus_said} ({names})' if count else f'{processors} processors, no GPU'}"
    if node_type.device == "cpu" or not (count or node_type.device):
        return Finding(what)
    problem = ""
    if not count:
        problem = f"It has no GPU, but nodes of type {node_type.name} are to have {node_type.device}: set another instance_type."
    elif count != node_type.slots:
        problem = f"It has {gpus_said}, but nodes of type {node_type.name} are to have {node_type.slots} slots: make them equal."
    elif node_type.device and not any(str(item.get("Name") or "").lower() in node_type.device.lower() for item in gpus):
        return Finding(f"{what}; whether the driver calls it {node_type.device} shows when the first agent joins")
    return Finding(what, problem)


async def _image(door: Ec2Client, settings: MachineSettings, architectures: Sequence[str]) -> Finding:
    what = f"image {settings.image}"
    try:
        image = await image_id(door, settings.image)
        shown = (await door.ask("describe_images", ImageIds=[image])).get("Images") or []
    except Ec2Refusal as error:
        if error.code in MAY_NOT:
            return Finding(f"{what}: not seen, as the launcher may not describe it")
        return Finding(what, str(error.error(f"show {what}")))
    if not shown:
        return Finding(what, f"There is no {what} in this region: copy it here, or set another.")
    item = shown[0]
    what = f"{what}: {str(item.get('Name') or image)[:100]}, {item.get('Architecture', '?')}"
    if str(item.get("State") or "") != "available":
        return Finding(what, f"It is {item.get('State')}: wait until it is available, or set another.")
    if str(item.get("Platform") or "").lower() == "windows":
        return Finding(what, "It is for Windows, and agents need Linux: set another.")
    if architectures and item.get("Architecture") not in architectures:
        return Finding(what, f"{settings.instance_type} is {' or '.join(architectures)}: set an image of that architecture.")
    sizes = [
        int((device.get("Ebs") or {}).get("VolumeSize") or 0)
        for device in item.get("BlockDeviceMappings") or []
        if device.get("DeviceName") == item.get("RootDeviceName")
    ]
    if settings.volume_gib and sizes and settings.volume_gib < sizes[0]:
        return Finding(what, f"Its volume has {sizes[0]} GiB, but volume_gib is {settings.volume_gib}: set it to no less.")
    return Finding(what)


async def _zones(door: Ec2Client, settings: MachineSettings) -> Finding:
    what = f"zones with {settings.instance_type}"
    filters = [{"Name": "instance-type", "Values": [settings.instance_type]}]
    try:
        offers = await door.pages(
            "describe_instance_type_offerings", "InstanceTypeOfferings", LocationType="availability-zone", Filters=filters
        )
        wanted = set(settings.zones) or await _zones_of(door, settings.subnets)
    except Ec2Refusal as error:
        return _unseen(what, error)
    offered = {str(item.get("Location")) for item in offers}
    lacking = sorted(wanted - offered)
    problem = f"It is not offered in {', '.join(lacking)}: leave that out, or set another instance_type." if lacking else ""
    return Finding(f"{what}: {', '.join(sorted(wanted & offered or offered))}", problem)


async def _zones_of(door: Ec2Client, subnets: Sequence[str]) -> set[str]:
    if not subnets:
        return set()
    found = (await door.ask("describe_subnets", SubnetIds=list(subnets))).get("Subnets") or []
    return {str(item.get("AvailabilityZone")) for item in found}


async def _network(door: Ec2Client, settings: MachineSettings) -> list[Finding]:
    found, networks = [], set[str]()
    if settings.subnets:
        what = f"subnets {', '.join(settings.subnets)}"
        try:
            subnets = (await door.ask("describe_subnets", SubnetIds=list(settings.subnets))).get("Subnets") or []
        except Ec2Refusal as error:
            found.append(_unseen(what, error))
        else:
            full = [str(item["SubnetId"]) for item in subnets if item.get("AvailableIpAddressCount") == 0]
            found.append(Finding(what, f"There is no free address in {', '.join(full)}." if full else ""))
            networks |= {str(item.get("VpcId")) for item in subnets}
    if settings.security_groups:
        what = f"security groups {', '.join(settings.security_groups)}"
        try:
            groups = (await door.ask("describe_security_groups", GroupIds=list(settings.security_groups))).get(
                "SecurityGroups"
            ) or []
        except Ec2Refusal as error:
            found.append(_unseen(what, error))
        else:
            networks |= {str(item.get("VpcId")) for item in groups}
            problem = "They and the subnets are in several networks (VPC): name those of one." if len(networks) > 1 else ""
            found.append(Finding(what, problem))
    if settings.key_name:
        found.append(await _exists(f"key pair {settings.key_name}", door.ask("describe_key_pairs", KeyNames=[settings.key_name])))
    return found


async def _exists(what: str, asked: Awaitable[Document]) -> Finding:
    try:
        await asked
    except Ec2Refusal as error:
        return _unseen(what, error)
    return Finding(what)


async def _quota(door: Ec2Client, settings: MachineSettings, processors: int) -> Finding:
    what = f"quota of {'spot ' if settings.spot else ''}processors for {settings.instance_type}"
    for code in codes_of(settings.instance_type, settings.spot):
        try:
            shown = await door.ask("get_service_quota", service="service-quotas", ServiceCode="ec2", QuotaCode=code)
        except Ec2Refusal as error:
            if error.code == "NoSuchResourceException":
                continue
            if error.code in MAY_NOT:
                return Finding(f"{what}: not seen, as the launcher may not ask for it")
            return Finding(f"{what}: not seen ({visible(error.code)[:100]})")
        except Ec2Unreachable as error:
            return Finding(f"{what}: not seen, as {error}")
        most = float((shown.get("Quota") or {}).get("Value") or 0)
        problem = (
            f"One machine needs {processors} of them: ask AWS for more (Service Quotas, {code})." if processors > most else ""
        )
        return Finding(f"{what}: {most:g}", problem)
    return Finding(f"{what}: not known which it is")


async def _price(door: Ec2Client, node_type: NodeType, settings: MachineSettings) -> Finding:
    what = f"spot price of {settings.instance_type}"
    try:
        shown = await door.ask(
            "describe_spot_price_history", InstanceTypes=[settings.instance_type], ProductDescriptions=[PRODUCT],
            StartTime=datetime.now(UTC),
        )  # fmt: skip
    except Ec2Refusal as error:
        return _unseen(what, error)
    prices = {str(item["AvailabilityZone"]): float(item["SpotPrice"]) for item in shown.get("SpotPriceHistory") or []}
    if not prices:
        return Finding(f"{what}: EC2 says none")
    text = ", ".join(f"{price:g} in {zone}" for zone, price in sorted(prices.items(), key=lambda entry: entry[1]))
    least = min(prices.values())
    problem = ""
    if settings.spot_price_max and float(settings.spot_price_max) < least:
        problem = f"spot_price_max is {settings.spot_price_max}, so none starts now: raise it, or leave it out."
    return Finding(f"{what}: {text}; cost_per_hour says {node_type.cost_per_hour:g}"[:300], problem)


async def _dry_run(door: Ec2Client, cluster: str, pool: str, node_type: NodeType, settings: MachineSettings) -> Finding:
    what = f"dry run of an instance of type {node_type.name}"
    order, now = Order(f"{pool}-check", node_type, {}), datetime.now(UTC)
    try:
        image = await image_id(door, settings.image)
        request = machines.request(cluster, pool, order, settings, image, "/dev/sda1", "#!/bin/sh\n", now)
        await door.ask("run_instances", DryRun=True, **{**request, **settings.places()[0]})
    except Ec2Refusal as error:
        if error.code == "DryRunOperation":
            return Finding(what)
        return Finding(what, f"{error.error('take such an instance')}{remedy(error)}")
    return Finding(what)


def _unseen(what: str, error: Ec2Refusal) -> Finding:
    if error.code in MAY_NOT:
        return Finding(f"{what}: not seen, as the launcher may not describe it")
    return Finding(what, str(error.error(f"show {what}")))

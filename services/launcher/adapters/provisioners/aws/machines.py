"""A node as EC2 is told of it, and as EC2 shows it: an instance with tags. Nothing is asked or done here."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from tenuto.schemas.text import visible
from tenuto.services.launcher.adapters.provisioners import Order, Phase, RealNode
from tenuto.services.launcher.adapters.provisioners.aws.settings import MachineSettings

Document = dict[str, Any]
CLUSTER, POOL, NODE, END_OF_LIFE = "tenuto:cluster", "tenuto:pool", "tenuto:node", "tenuto:end-of-life"
"""Tags of everything that belongs to a node. The last is the time after which nothing of it may exist: a clean-up of the account
may end it then."""
END_HOURS = 1
"""Hours between the machine's own end and the time in the tag END_OF_LIFE."""
STOP_SECONDS = 90
"""Time from EC2's order to shut down until the agent has ended; EC2 waits longer for the operating system."""
SCRIPT_BYTES_MAX = 16_384
"""Most bytes of user data that EC2 accepts."""
TOKEN_SECONDS = 3_600
"""Time for which a ClientToken is used. It keeps a start that EC2 does not show yet, which takes seconds, from being repeated;
should a start fail although EC2 accepted it, the next hour's is another."""
DETAIL_MAX = 300
_PHASES: Mapping[str, Phase] = {"pending": "pending", "terminated": "ended"}
_ORDINARY = ("Client.UserInitiatedShutdown", "Client.InstanceInitiatedShutdown")
_AT = re.compile(r"\((\d{4}-\d\d-\d\d \d\d:\d\d:\d\d) (?:GMT|UTC)\)")


def client_token(cluster: str, node_id: str, place: Mapping[str, Any], now: datetime) -> str:
    """ClientToken: always the same for a node and a place, within an hour."""
    hour = int(now.timestamp()) // TOKEN_SECONDS
    return hashlib.sha256("\0".join((cluster, node_id, repr(sorted(place.items())), str(hour))).encode()).hexdigest()[:64]


def request(
    cluster: str, pool: str, order: Order, settings: MachineSettings, image: str, root_device: str, script: str, now: datetime
) -> Document:
    """RunInstances for one node, without the place and its ClientToken. `root_device`: needed for a size of the volume."""
    tags = [{"Key": key, "Value": value} for key, value in tags_of(cluster, pool, order.node_id, settings, now).items()]
    found: Document = {
        "MinCount": 1,
        "MaxCount": 1,
        "ImageId": image,
        "InstanceType": settings.instance_type,
        "UserData": script,
        "InstanceInitiatedShutdownBehavior": "terminate",
        # The script is told by the metadata service: only to who asks with a session, and to no container's network.
        "MetadataOptions": {
            "HttpEndpoint": "enabled",
            "HttpTokens": "required",
            "HttpPutResponseHopLimit": 1,
            "HttpProtocolIpv6": "disabled",
        },
        "TagSpecifications": [{"ResourceType": kind, "Tags": tags} for kind in ("instance", "volume")],
    }
    if settings.security_groups:
        found["SecurityGroupIds"] = list(settings.security_groups)
    if settings.key_name:
        found["KeyName"] = settings.key_name
    if settings.iam_instance_profile:
        found["IamInstanceProfile"] = {"Name": settings.iam_instance_profile}
    if settings.placement_group:
        found["Placement"] = {"GroupName": settings.placement_group}
    if settings.spot:
        price = {"MaxPrice": settings.spot_price_max} if settings.spot_price_max else {}
        options = {"SpotInstanceType": "one-time", "InstanceInterruptionBehavior": "terminate", **price}
        found["InstanceMarketOptions"] = {"MarketType": "spot", "SpotOptions": options}
    if settings.volume_gib:
        volume = {"VolumeSize": settings.volume_gib, "VolumeType": "gp3", "DeleteOnTermination": True}
        found["BlockDeviceMappings"] = [{"DeviceName": root_device, "Ebs": volume}]
    return found


def tags_of(cluster: str, pool: str, node_id: str, settings: MachineSettings, now: datetime) -> dict[str, str]:
    end = now + timedelta(hours=settings.boot.lifetime_hours + END_HOURS)
    own = {
        "Name": node_id,
        CLUSTER: cluster,
        POOL: pool,
        NODE: node_id,
        END_OF_LIFE: end.astimezone(UTC).strftime("%Y-%m-%dT%H:%MZ"),
    }
    return {**dict(settings.tags), **own}


def filters_of(cluster: str, pool: str, node_ids: Sequence[str] = ()) -> list[Document]:
    found: list[Document] = [{"Name": f"tag:{CLUSTER}", "Values": [cluster]}, {"Name": f"tag:{POOL}", "Values": [pool]}]
    return found + ([{"Name": f"tag:{NODE}", "Values": list(node_ids)}] if node_ids else [])


def belongs(instance: Document, cluster: str, pool: str) -> bool:
    """EC2 reads * and ? in filters as patterns."""
    tags = _tags(instance)
    return tags.get(CLUSTER) == cluster and tags.get(POOL) == pool and bool(tags.get(NODE))


def node_id_of(instance: Document) -> str:
    return _tags(instance).get(NODE, "")


def is_ended(instance: Document) -> bool:
    return _phase(instance) == "ended"


def ended_at(instance: Document) -> datetime | None:
    """None: not known."""
    found = _AT.search(str(instance.get("StateTransitionReason") or ""))
    return datetime.strptime(found[1], "%Y-%m-%d %H:%M:%S").replace(tzinfo=UTC) if found else None


def node_of(instance: Document, last_words: str = "") -> RealNode:
    """`last_words`: the end of what an instance that has ended has printed."""
    reason = instance.get("StateReason") or {}
    code, message = str(reason.get("Code") or ""), str(reason.get("Message") or "")
    words = message if code and code not in _ORDINARY else ""
    state = _state(instance)
    if _phase(instance) == "running":
        kind = "spot, " if instance.get("InstanceLifecycle") == "spot" else ""
        zone = (instance.get("Placement") or {}).get("AvailabilityZone") or "?"
        words = f"{kind}{instance.get('InstanceType', '?')} in {zone}" if state == "running" else state
    detail = ": ".join(item for item in (words, last_words) if item)
    return RealNode(node_id_of(instance), str(instance["InstanceId"]), _phase(instance), visible(detail)[:DETAIL_MAX])


def last_words_of(console: str) -> str:
    """The last line, which is the agent's where it ended by itself."""
    return next((line.strip() for line in reversed(console.splitlines()) if line.strip()), "")


def _phase(instance: Document) -> Phase:
    """running: also while it shuts down, as its agent may still be there, and when it is stopped, as its volume is paid for."""
    return _PHASES.get(_state(instance), "running")


def _state(instance: Document) -> str:
    return str((instance.get("State") or {}).get("Name") or "")


def _tags(instance: Document) -> dict[str, str]:
    return {item["Key"]: item.get("Value", "") for item in instance.get("Tags") or []}

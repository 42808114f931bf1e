"""Settings of the provisioner aws, and the quotas that count for its instances."""

from __future__ import annotations

import pytest

from tenuto.schemas.provisioning import NodeType, Provisioning
from tenuto.services.launcher.adapters.provisioners import Finding
from tenuto.services.launcher.adapters.provisioners.aws import checks
from tenuto.services.launcher.adapters.provisioners.aws.door import Ec2Refusal, Ec2Unreachable
from tenuto.services.launcher.adapters.provisioners.aws.quotas import codes_of
from tenuto.services.launcher.adapters.provisioners.aws.settings import MachineSettings, machine_of
from tenuto.services.launcher.adapters.provisioners.setting_readers import BadSetting
from tests.support.ec2 import REGION


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"instance_type": "g5"}, "a type of instances"), ({"image": "ubuntu"}, "an AMI"),
        ({"subnets": "subnet-1"}, "subnets such as"),
        ({"subnets": "subnet-12345678", "zones": "us-east-1a"}, "exclude each other"), ({"spot": "yes"}, "true or false"),
        ({"spot_price_max": "1"}, "set spot=true"), ({"spot": "true", "spot_price_max": "-1"}, "dollars"),
        ({"tags": "tenuto:pool=x"}, "no key may begin with"), ({"tags": "aws:x=y"}, "no key may begin with"),
        ({"tags": "a"}, "key=value"), ({"zones": ",".join(["us-east-1a"] * 21)}, "at most 20"),
        ({"volume_gib": "0"}, "whole number"),
        ({"unheard_of": "x"}, "unknown to the provisioner aws"), ({"endpoint_url": "file:///etc"}, "an address"),
        ({"credentials_file": "../aws"}, "without a path"), ({"python": "python"}, "absolute path"),
        ({"region": "US"}, "a region"),
        ({"user": "ubuntu", "worker_user": "x"}, "needs an agent that is root"),
    ],
)  # fmt: skip
def test_settings_that_are_refused(settings: dict[str, str], words: str) -> None:
    given = {"region": REGION, "instance_type": "m5.large", "image": "ami-12345678", **settings}
    with pytest.raises(BadSetting, match=words):
        machine_of(Provisioning(provisioner="aws", settings=given), NodeType())


def test_settings_that_belong_to_the_pool() -> None:
    given = {"region": REGION, "instance_type": "m5.large", "image": "ami-12345678"}
    with pytest.raises(BadSetting, match="belongs to the pool"):
        machine_of(Provisioning(provisioner="aws", settings=given), NodeType(settings={"region": "eu-west-1"}))
    own = NodeType(settings={"instance_type": "g5.xlarge", "spot": "true"})
    assert machine_of(Provisioning(provisioner="aws", settings=given), own).spot


def test_quotas_by_family() -> None:
    assert codes_of("m5.large", False) == codes_of("c7gn.large", False) == ("L-1216C47A",)
    assert codes_of("g5.xlarge", True) == codes_of("gr6.4xlarge", True) == ("L-3819A6DF",)
    assert codes_of("p4d.24xlarge", True) == ("L-7212CCBC",)
    assert codes_of("p5.48xlarge", False) == ("L-417A185B",)
    assert codes_of("hpc7a.96xlarge", False) == ("L-F7808C92",)
    assert codes_of("u-6tb1.112xlarge", False) == ("L-43DA4232",)
    assert codes_of("hpc7a.96xlarge", True) == codes_of("mac2.metal", False) == codes_of("unheard.of", False) == ()


class Quotas:
    """A door to an account's quotas, by their codes."""

    def __init__(self, **values: float | Ec2Refusal | Ec2Unreachable) -> None:
        self.values = {name.replace("_", "-"): value for name, value in values.items()}

    async def ask(self, method: str, *, service: str, ServiceCode: str, QuotaCode: str) -> object:  # noqa: N803 - Amazon's names
        assert (method, service, ServiceCode) == ("get_service_quota", "service-quotas", "ec2")
        found = self.values.get(QuotaCode, Ec2Refusal("NoSuchResourceException", "", 400))
        if isinstance(found, Exception):
            raise found
        return {"Quota": {"Value": found}}


@pytest.mark.parametrize(
    ("quotas", "said", "problem"),
    [
        ({"L_C4BD4855": 0.0, "L_7212CCBC": 768.0}, ": 0",
         "One machine needs 192 of them: ask AWS for more (Service Quotas, L-C4BD4855)."),
        ({"L_7212CCBC": 768.0}, ": 768", ""),
        ({}, ": not known which it is", ""),
        ({"L_C4BD4855": Ec2Refusal("AccessDeniedException", "", 400)}, ": not seen, as the launcher may not ask for it", ""),
        ({"L_C4BD4855": Ec2Refusal("TooManyRequestsException", "", 400)}, ": not seen (TooManyRequestsException)", ""),
        ({"L_C4BD4855": Ec2Unreachable("it is away")}, ": not seen, as it is away", ""),
    ],
)  # fmt: skip
async def test_the_quota_that_the_account_has_counts(quotas: dict[str, float], said: str, problem: str) -> None:
    """Spot requests for P5 have one of their own only in some accounts."""
    settings = MachineSettings(instance_type="p5.48xlarge", image="ami-12345678", spot=True)
    found = await checks._quota(Quotas(**quotas), settings, 192)  # type: ignore[arg-type]
    assert found == Finding(f"quota of spot processors for p5.48xlarge{said}", problem)


async def test_a_problem_with_the_way_to_ec2_says_what_to_do() -> None:
    assert checks.remedy(Ec2Refusal("UnauthorizedOperation", "", 403)) == " Give the launcher the rights of docs/aws.md."
    assert "valid keys" in checks.remedy(Ec2Refusal("AuthFailure", "", 401))
    assert "no region us-east-9" in checks.remedy(Ec2Unreachable("no answer"), "us-east-9")
    assert checks.remedy(Ec2Unreachable("no answer"), "us-gov-west-1") == checks.remedy(Ec2Unreachable("no answer")) == ""
    assert "its answer is a page with status 500 (500)." in str(
        Ec2Refusal("500", "<!doctype html>\n<title>x", 500).error("start it")
    )

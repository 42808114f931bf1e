"""The boot script's rules against the metadata service, by the real iptables in a network of its own: trials do not reach the
service at any of its addresses, and the agent does."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from importlib.resources import files

import pytest

from tests.support.namespaces import inside, ip, two_namespaces

IPTABLES = "" if shutil.which("iptables") else "There is no iptables here."
ADDRESSES = ("169.254.169.254", "fd00:ec2::254", "fd20:ce::254")
"""AWS and Google; the others are AWS's and Google's over IPv6."""
ASK = """
import os, socket, sys
address, account = sys.argv[1:]
family = socket.AF_INET6 if ":" in address else socket.AF_INET
server = socket.create_server((address, 80), family=family)
os.setuid(int(account))
client = socket.socket(family)  # belongs to that account
client.settimeout(3)
try:
    client.connect((address, 80))
except OSError as error:
    sys.exit(type(error).__name__)
"""
NOBODY = 65534


def _close() -> str:
    """The script's part that does it."""
    text = files("tenuto.services.launcher.adapters.provisioners.boot").joinpath("boot.sh").read_text()
    begin = text.index("close_metadata() {")
    return text[begin : text.index("install_tenuto() {")]


@pytest.mark.real_part(IPTABLES)
@pytest.mark.skipif(os.geteuid() != 0, reason="only root has network namespaces")
def test_trials_do_not_reach_the_metadata_service_at_any_address() -> None:
    def reaches(address: str, account: int) -> bool:
        asked = [*inside(name), sys.executable, "-c", ASK, address, str(account)]
        return subprocess.run(asked, check=False, capture_output=True, timeout=60).returncode == 0

    with two_namespaces() as (name, _):
        for address in ADDRESSES:
            ip(
                "-n",
                name,
                "address",
                "add",
                f"{address}/{128 if ':' in address else 32}",
                "dev",
                "lo",
                *["nodad"] * (":" in address),
            )
        assert all(reaches(address, NOBODY) for address in ADDRESSES), "before the rules"
        script = f"worker_user={NOBODY}\n{_close()}\nclose_metadata"
        subprocess.run([*inside(name), "bash", "-uc", script], check=True, timeout=60)
        assert [address for address in ADDRESSES if reaches(address, NOBODY)] == []
        assert all(reaches(address, 0) for address in ADDRESSES), "the agent asks for notices"

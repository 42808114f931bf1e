#!/bin/sh
# Installs from Debian (or its kin) what tests against real parts need: a browser for the page, a Docker daemon and a
# registry for images, Slurm, sshd.
# Tests that lack them are skipped and say so; so nothing here is an error: a machine without apt, root or a mirror stays as it is.
set -u
packages="chromium-headless-shell docker.io iptables slurmctld slurmd slurm-client slurm-wlm-basic-plugins slurmrestd slurm-wlm-jwt-plugin munge openssh-server docker-registry"

missing=""
for package in $packages; do
    [ "$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null)" = installed ] || missing="$missing $package"
done
if ! command -v apt-get >/dev/null 2>&1; then
    echo "There is no apt-get here: install a Chromium and a Docker daemon yourself, or tests that need them are skipped."
    exit 0
fi
if [ -z "$missing" ]; then
    echo "All system packages are installed:" $packages
    exit 0
fi
if [ "$(id -u)" -ne 0 ]; then
    echo "Only root may install system packages: run apt-get install$missing, or tests that need them are skipped."
    exit 0
fi
# Daemons are started by tests themselves, each with directories of its own: RUNLEVEL=1 keeps packages from starting any.
export DEBIAN_FRONTEND=noninteractive RUNLEVEL=1
options="-q -y -o Acquire::Retries=2 -o Acquire::http::Timeout=30 -o DPkg::Lock::Timeout=60"
if apt-get $options update >/dev/null && apt-get $options install --no-install-recommends $missing >/dev/null; then
    echo "Installed:$missing"
else
    echo "Not all of these could be installed, so tests that need them are skipped:$missing"
fi
exit 0

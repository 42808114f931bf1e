# The rest of it. The lines before set node, python, setup, user, worker_user, directory, boot_seconds, stop_seconds,
# lifetime_seconds, end_notice, environment, install. Nothing ends this script early: whatever fails, the machine is turned off.
set -u
umask 077
export PATH="${PATH:-/usr/bin:/bin}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

say() { echo "tenuto: $*"; }

why="The boot script has ended."
off() {
    leave_words
    if [ -n "$why" ]; then say "$why The machine turns itself off."; fi
    shutdown -h now || poweroff || halt -p
}

# Google shows nothing of a machine that is off but what it left in its guest attributes.
leave_words() {
    [ "$end_notice" = gcp ] || return 0
    local address=${TENUTO_END_NOTICE_URL:-http://169.254.169.254}/computeMetadata/v1/instance/guest-attributes/tenuto
    local put=(curl --silent --max-time 5 --noproxy '*' -X PUT -H 'Metadata-Flavor: Google' --output /dev/null)
    sleep 1 # what was printed last is on its way to the log
    tail -n 50 -- "$place/agent.log" 2>/dev/null | tail -c 4000 | "${put[@]}" --data-binary @- "$address/log"
    "${put[@]}" --data-binary "$why" "$address/why"
}

# Removes this script, which has the token, from where cloud-init has put it: what runs it has it open.
forget_script() {
    local first second
    { IFS= read -r first && IFS= read -r second; } <"$0" 2>/dev/null || return 0
    if [ "$first" = '#!/bin/bash' ] && [ "$second" = '# Boot script of a node of Tenuto.' ]; then
        rm -f -- "$0"
        case $0 in /var/lib/cloud/*) rm -f -- /var/lib/cloud/instances/*/user-data.txt* ;; esac
    fi
}

add_account() {
    id -u -- "$1" >/dev/null 2>&1 && return 0
    useradd --system --user-group --create-home --shell /bin/sh -- "$1"
}

# Trials need nothing of the metadata service, and could read this script there, or act as the machine. The agent asks it for
# notices. Port 53 is the name server of some clouds. Over IPv6 it has another address in each cloud.
close_metadata() {
    close_by iptables ip 169.254.169.254 || return 1
    [ -e /proc/net/if_inet6 ] || return 0 # no IPv6 here
    close_by ip6tables ip6 fd00:ec2::254 fd20:ce::254
}

close_by() {
    local command=$1 family=$2 address chain rule
    shift 2
    for address in "$@"; do
        rule=(-d "$address" -p tcp '!' --dport 53 -j REJECT)
        if "$command" -w 5 -I OUTPUT -m owner --uid-owner "$worker_user" "${rule[@]}" 2>/dev/null; then
            for chain in FORWARD DOCKER-USER; do "$command" -w 5 -I "$chain" "${rule[@]}" 2>/dev/null; done
            continue
        fi
        nft -f - 2>/dev/null <<RULES || return 1
table $family tenuto {
    chain output { type filter hook output priority 0; meta skuid $(id -u -- "$worker_user") $family daddr $address tcp dport != 53 reject; }
    chain forward { type filter hook forward priority 0; $family daddr $address tcp dport != 53 reject; }
}
RULES
    done
}

install_tenuto() {
    local left
    [ "${#install[@]}" = 0 ] && return 0
    say "pip installs ${install[*]}"
    for left in 2 1 0; do
        # Readable for the trials' account. A machine is thrown away, so its own Python may be changed.
        if (umask 022 && PIP_BREAK_SYSTEM_PACKAGES=1 PIP_ROOT_USER_ACTION=ignore PIP_DISABLE_PIP_VERSION_CHECK=1 \
            PIP_NO_INPUT=1 timeout "$boot_seconds" "$python" -m pip install --quiet -- "${install[@]}" </dev/null); then
            return 0
        fi
        [ "$left" = 0 ] || sleep 5
    done
    return 1
}

# The machine's life; at its end, however it comes, the machine is turned off.
supervise() {
    local begun=$SECONDS said agent code last joined= ordered=
    trap off EXIT
    export HOME=/root
    exec > >(exec tee -a -- "$place/agent.log") 2>&1
    said=$(cat -- "$place/environment")
    rm -f -- "$place/environment"
    if [ -n "$setup" ]; then
        set +u
        . "$setup" || say "$setup failed with exit code $?."
        set -u
    fi
    if ! install_tenuto; then
        why="pip cannot install ${install[*]}."
        return
    fi
    local as=()
    if [ "$user" != "$(id -un)" ]; then
        if ! add_account "$user"; then
            why="There is no account $user, and it cannot be made."
            return
        fi
        as=(runuser -u "$user" --)
        HOME=$(getent passwd "$user" | cut -d: -f6)
        export HOME USER=$user LOGNAME=$user
    fi
    if [ -n "$worker_user" ]; then
        if ! add_account "$worker_user"; then
            why="There is no account $worker_user, and it cannot be made."
            return
        fi
        close_metadata || say "Neither iptables nor nft closes the metadata service to trials, which could read this machine's user data and rights."
        export TENUTO_WORKER_USER=$worker_user
    fi
    mkdir -m 700 -- "$place/agent" && chown -- "$user" "$place/agent"
    export TENUTO_AGENT_DIRECTORY=$place/agent
    export TENUTO_LEAVE_AT=$(($(date +%s) + lifetime_seconds)) TENUTO_LEAVE_SIGNAL_SECONDS=$((stop_seconds - 5))
    set -a
    eval "$said"
    set +a
    cd /
    ${as[@]+"${as[@]}"} "$python" -m tenuto.cli.main agent run --name "$node" </dev/null &
    agent=$!
    unset said TENUTO_JOIN_TOKEN
    trap 'ordered=yes; kill -TERM "$agent" 2>/dev/null || true' TERM
    while kill -0 "$agent" 2>/dev/null; do
        if [ -z "$joined" ] && [ -s "$place/agent/joined.json" ]; then
            joined=yes
            shutdown -c 2>/dev/null
            # The agent leaves by itself before; this is for one that hangs.
            shutdown -h "+$((lifetime_seconds / 60 + 10))" >/dev/null 2>&1 &
        fi
        if [ -z "$joined" ] && [ $((SECONDS - begun)) -ge "$boot_seconds" ]; then
            why="The agent has not joined within $boot_seconds s."
            kill -KILL "$agent"
            return
        fi
        code=0
        if [ -n "$joined" ]; then wait "$agent" || code=$?; else sleep 1; fi # a signal ends the wait, and not the agent
    done
    last=0
    wait "$agent" 2>/dev/null || last=$?
    if [ "$last" != 127 ]; then code=$last; fi
    # An agent that ends by itself has said why, and its words are to be the last.
    why=
    if [ "$code" -gt 128 ]; then
        why="The agent was killed (signal $((code - 128)))."
        if [ "$ordered" = yes ] && [ "$code" = 143 ]; then why="The machine was told to end, and its agent with it."; fi
    fi
}

forget_script
place=$directory/$node
# Before all else: a machine of which nothing comes must not be paid for.
shutdown -h "+$((boot_seconds / 60 + 1))" >/dev/null 2>&1 &
mkdir -p -m 711 -- "$directory"
if ! mkdir -m 711 -- "$place"; then # a machine that starts again is no node: its agent is lost, and its token was used
    why="$place cannot be made, or this machine has been this node before."
    off
    exit 1
fi
printf '%s' "$environment" >"$place/environment"
{
    declare -p PATH why node python setup user worker_user boot_seconds stop_seconds lifetime_seconds install place end_notice
    declare -f say off leave_words add_account close_metadata close_by install_tenuto supervise
    echo 'set -u; umask 077; supervise'
} >"$place/supervise"
unset environment
if [ -d /run/systemd/system ] && systemd-run --quiet --collect --unit=tenuto-agent --property=KillMode=mixed \
    --property="TimeoutStopSec=$stop_seconds" --property=StandardOutput=journal+console \
    --property=StandardError=journal+console --property="ExecStopPost=$(command -v shutdown) -h now" \
    /bin/bash "$place/supervise"; then
    exit 0
fi
exec /bin/bash "$place/supervise"

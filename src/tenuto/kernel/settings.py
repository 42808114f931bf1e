"""Settings of every process, read from `TENUTO_...` variables. Each has a default that suits the laptop cluster."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path

_ADDRESS = re.compile(r"(?:\[(?P<v6>[0-9A-Fa-f:.]+)\]|(?P<host>[^:\[\]\s]+)):(?P<port>[0-9]{1,5})")


class SettingsError(ValueError):
    pass


@dataclass(frozen=True)
class Settings:
    """Settings of a process. The variable of a field is `TENUTO_` and its name in capitals, such as TENUTO_DATABASE_URL."""

    database_url: str = ""
    """URL of PostgreSQL for the services, as the service role: postgresql://tenuto_service@host:port/tenuto"""
    database_owner_url: str = ""
    """URL of PostgreSQL as the owner, for migrations only. Empty: this process runs no migrations."""
    nats_url: str = "nats://127.0.0.1:4222"
    nats_user: str = ""
    nats_password: str = ""
    nats_password_file: str = ""
    """File with the password, in place of `nats_password`: unlike a variable, it is not part of the process's environment."""
    nats_public_url: str = ""
    """Address at which agents that join reach NATS, told to them by the gateway. Empty: `nats_url`."""
    nats_ca_file: str = ""
    """File with the certificate (PEM) that NATS's own is checked by, if that is self-made. Empty: the machine's authorities, and
    TLS only if `nats_url` begins with tls://."""
    bus_users_directory: str = ""
    """Directory of the bus's users, in which the gateway writes agents that join, and removes those that are revoked. Empty: only
    the operator does (`tenuto agent credentials --users`). See docs/joining.md."""
    preload: int = 1
    """1: `tenuto up` forks its services and agents from one process that has imported their modules. 0: each is an interpreter of
    its own, which costs time and memory, but shares nothing."""
    agent_directory: str = ""
    """Directory of an agent's own files: its spool, and its runs. (TENUTO_DATA_DIRECTORY is no setting of a process: it names
    the directory of a whole cluster on this machine, for the command line.)"""
    shared_directory: str = ""
    """Directory of the gateway with contexts/ (packed model directories), and of gateway, tracker and agents with checkpoints/,
    the store `shared`. Empty for an agent: the gateway sends it contexts over the bus, and it runs trials whose checkpoints are
    in another store."""
    stores_file: str = ""
    """File with the checkpoint stores that the operator declared, credentials included; services and agents read it, workers
    do not. Empty: only the store `shared` exists."""
    gateway_url: str = ""
    """Address of the gateway, where an agent asks whether it was revoked once NATS refuses it. Agents that joined by a token know
    it; without it an agent with credentials from the operator tries again for ever."""
    rest_host: str = "127.0.0.1"
    rest_port: int = 8080
    rest_cert_file: str = ""
    """File with the REST door's TLS certificate (PEM), and those between it and its authority. Empty: the door speaks HTTP."""
    rest_key_file: str = ""
    """File with that certificate's key (PEM), for the gateway only."""
    rest_tls_host: str = ""
    """Address at which the door speaks HTTPS, on `rest_port`; then it speaks HTTP at `rest_host`, for programs of its own
    machine. Empty: it speaks HTTPS at `rest_host`, if it has a certificate."""
    rest_token_file: str = ""
    """File with the bearer token of the REST door, readable only by its owner."""
    secret_key_file: str = ""
    """File with the key of the users' secrets, for gateway and launcher only; the first of them that needs it makes it."""
    provisioner_directory: str = ""
    """Directory with files that provisioners of nodes need, such as SSH keys and a kubeconfig, for the launcher only. Under
    `tenuto up`: `provisioners` in the cluster's directory."""
    token_days: float = 90.0
    """Life of a user's token in days. 0: tokens do not expire."""
    session_days: float = 7.0
    """Time from a sign-in until it has to be repeated, in days. 0: sessions end with a change of the password only."""
    oidc_issuer: str = ""
    """Address of the provider of identities (OpenID Connect) that users may sign in at, such as https://id.example.com, exactly
    as it names itself. Empty: none."""
    oidc_client_id: str = ""
    """Id of this cluster at the provider, which knows TENUTO_PUBLIC_URL/api/v1/sso/callback as its redirect."""
    oidc_client_secret_file: str = ""
    """File with the client's secret, for the gateway only. Empty: the client is a public one."""
    oidc_scopes: str = "openid profile email"
    """Scopes that are asked for."""
    oidc_user_claim: str = "preferred_username"
    """Claim that is the user's name here, in small letters."""
    oidc_groups_claim: str = "groups"
    """Claim that has the user's groups; roles may be granted to groups."""
    oidc_create_users: int = 0
    """1: a person that the provider knows becomes a user at the first sign-in. 0: an admin makes and links users."""
    requests_per_second_max: float = 100.0
    """Most requests per second of one user to the REST door, over all the user's tokens; ten seconds' worth may come at once.
    It is a tenth of the door's capacity, so that one user's loop leaves room for others. 0: no limit."""
    token_requests_per_second_max: float = 50.0
    """The same of one token: a program in a loop leaves room for its user's others. 0: no limit."""
    cors_origins: str = ""
    """Origins of pages whose scripts may use the REST door, with commas between, such as https://page.example.com; * for all.
    Empty: none."""
    deletion_grace_hours: float = 24.0
    """Time in which the deletion of an experiment can be taken back. 0: it is deleted at once."""
    public_url: str = ""
    """Address by which users reach the REST door, for links in notices, such as https://tenuto.example.com. Empty: `rest_host`
    and `rest_port`."""
    webhook_addresses: str = ""
    """Addresses and networks that are not public and that webhooks may be sent to, with commas between, such as
    10.20.0.0/16,127.0.0.1. Empty: none."""
    context_bytes_max: int = 100 * 1024 * 1024
    """Largest packed model directory in bytes, for the gateway and agents that it is sent to: it is for code, not for data."""
    artifact_bytes_max: int = 1 << 30
    """Largest artifact of an unmanaged run in bytes; a run keeps at most ten times as much, an experiment a hundred times, the
    runs of one user two hundred times: room for the weights of models, but no user can fill the shared directory."""
    lease_seconds_max: float = 10.0
    """Time without a heartbeat after which an agent is lost: five missed heartbeats."""
    heartbeat_seconds: float = 2.0
    """Time between two heartbeats, in which an agent lists what it runs."""
    preempt_grace_seconds_max: float = 120.0
    """Longest time for a preempted worker to save its checkpoint before it is killed."""
    batch_events_max: int = 500
    """Most inputs that a service decides on at once: larger batches gain little (one fsync is already shared), and cost
    latency."""
    snapshot_events: int = 5_000
    """Number of inputs between two snapshots: a start folds at most that many."""
    log_stream_bytes_max: int = 1 << 30
    """Bytes of the log that JetStream keeps; older events are read from PostgreSQL."""
    ingress_stream_bytes_max: int = 1 << 30
    """Most bytes of reports waiting in JetStream; beyond it agents keep them in their spools."""
    trace_exporter: str = "none"
    """none, console or otlp (to OTEL_EXPORTER_OTLP_ENDPOINT)."""
    metrics_listen: str = ""
    """Host and port at which a service tells Prometheus its metrics (/metrics) and answers probes (/healthz, /readyz), such as
    0.0.0.0:9100; each service of a machine needs a port of its own. Empty: at none. See docs/metrics.md."""
    log_level: str = "INFO"
    anchor_targets: str = ""
    """Targets outside the database at which the signed end of the log is noted: addresses separated by spaces, such as
    file:///mnt/elsewhere/anchors.jsonl, store://audit/anchors (a store of `tenuto store create`) or https://host/path. Empty:
    none."""
    anchor_seconds: float = 3600.0
    """Time between two such notes while the log grows. An attacker who controls the database can cut off, unnoticed, what was
    recorded since the last note. 0: notes are made only by `tenuto log anchor`."""
    anchor_key_file: str = ""
    """File with the gateway's key that signs the notes, readable only by its owner; made at the first start."""
    pool: str = "default"
    agent_id: str = ""
    """Id of the agent. Empty: the host's name."""
    warm_environments_max: int = 2
    """Most processes with an imported framework that an agent keeps to fork workers from, one for each environment; about 350
    MB each with PyTorch, shared with their forks. 0: every worker starts cold."""
    agent_labels: str = ""
    """Labels of the agent, which experiments may ask for: `key=value`, separated by commas, such as `rack=7,disk=fast`. Agents
    with the same `rack` are near each other."""
    network_interface: str = ""
    """Name or address of the network interface over which an agent's ranks reach those of other agents. Empty: the interface
    on the route to NATS."""
    worker_user: str = ""
    """Account that an agent runs users' code as; the agent needs the right to change accounts. Empty: the agent's own account,
    and then that code can read whatever the agent can. See docs/security.md."""
    worker_confined: int = 0
    """1: an agent that is root, and has no `worker_user`, runs users' code as root without root's rights over what belongs to
    other accounts, among which are the cluster's secrets then; `tenuto up` as root does so where it finds no account to use. See
    docs/security.md."""
    worker_inherits: str = ""
    """Variables of an agent's own environment that its workers get beside those that they always get: names, or beginnings of
    names with a star, with commas between, such as WANDB_API_KEY,MY_LAB_*. See docs/limits.md."""
    cpu_slots: int = 0
    """CPU slots that an agent offers if it has no GPU. 0: one per core."""
    memory_bytes_per_slot: int = 0
    """Memory of a run on an agent for each of its slots, in bytes; a trial without slots has that of one. Of processes as of
    containers. 0: no limit. See docs/limits.md."""
    cpus_per_slot: float = 0.0
    """Processors of a run for each of its slots; a trial without slots has those of one. 0: no limit."""
    cgroup_parent: str = ""
    """Cgroup below which an agent makes those of its processes' runs, counted from the root of the hierarchy, such as /tenuto;
    made if it is missing. Empty: the agent's own cgroup."""
    limits_required: int = 0
    """1: an agent that cannot limit its processes' runs as set does not start. 0: it runs them without, and says so."""
    runtimes: str = "process,docker"
    """Ways in which an agent runs workers, with commas between: names of plug-ins (`tenuto plugin ls`). A run goes to the first
    that takes it. One that needs settings of its own, as docker needs TENUTO_DOCKER_URL, is passed over without them."""
    docker_url: str = ""
    """Address of the Docker daemon in whose containers an agent runs trials that name an image, such as
    unix:///var/run/docker.sock. Empty: the agent runs no images. See docs/containers.md."""
    docker_mounts: str = ""
    """Paths of the node that experiments may mount into their containers, with commas between. Read-only, unless `:rw` follows:
    /data,/scratch:rw. Of a read-only one also what is below it. `pool` among them: what the agent's pool allows, too. Empty:
    none, whatever the pool allows."""
    docker_root: int = 0
    """1: containers of an agent that runs as root, and has no `worker_user`, run as root, too. 0: they run as the
    system's unprivileged account."""
    docker_network: str = "bridge"
    """Network of containers, by its name in Docker: bridge, host, none, or one that the operator made."""
    docker_gang_network: str = "host"
    """Network of containers whose trial is on several agents, by its name in Docker, by which its ranks reach each other: host
    (that of the node), or one that the operator made and that connects all of these agents. See docs/containers.md."""
    docker_memory_bytes_per_slot: int = 0
    """Memory of a container for each of its slots, in bytes, if it is another than `memory_bytes_per_slot`. 0: the same."""
    docker_cpus_per_slot: float = 0.0
    """Processors of a container for each of its slots, if they are others than `cpus_per_slot`. 0: the same."""
    docker_shm_bytes: int = 2 << 30
    """Most shared memory (/dev/shm) of a container in bytes. Data loaders need far more than Docker's 64 MiB; what is not used
    costs nothing."""
    docker_warm_containers_max: int = 4
    """Most containers that wait for a run with the image's framework imported, of an agent that runs as root; some 300 MB each.
    More slots than that, and short trials: one for each slot. 0: every container starts cold. See docs/warm-workers.md."""
    docker_ulimits: str = ""
    """Limits of the processes of containers, with commas between: NAME=LIMIT or NAME=SOFT:HARD, -1 for none, such as
    memlock=-1,stack=67108864,nofile=65536. Empty: the daemon's own."""
    docker_read_only: int = 0
    """1: no container may write into its image's files. 0: those whose configuration says `read_only` may not."""
    docker_credentials_file: str = ""
    """File with the operator's credentials for registries, as Docker's config.json has them, readable by the agent only; for
    images of all users that name no credentials of their own. Empty: none."""
    agent_image: str = ""
    """Container image that the agent itself runs in, for trials that name it (`environment.image`) and no others; all of them
    run in it. The launcher sets it for a node that it starts in a trial's image (`node_images` of a pool). Empty: none."""
    gpus_required: int = 0
    """1: an agent that finds no GPU does not start. 0: it offers CPU slots then. The launcher sets it for a pod that holds GPUs
    and runs in a trial's image, which may hide the driver."""
    docker_pull_image: str = ""
    """Image that an agent begins to pull as it starts, before a trial needs it: on a new node that of the trial for which the
    launcher requested it. Empty: none."""
    leave_at: float = 0.0
    """Time at which an agent has to be gone, in seconds since 1970, such as the end of its Slurm job; its trials save before and
    go on elsewhere. 0: none. See docs/slurm.md."""
    leave_save_seconds: float = 120.0
    """Time before an agent's end at which what runs is told to save and go on elsewhere: a large checkpoint takes a minute."""
    leave_closed_seconds: float = 300.0
    """Time before an agent's end from which nothing new begins there: a trial that had less would hardly get beyond its start."""
    leave_signal_seconds: float = 0.0
    """Time from SIGTERM until an agent is killed, where that signal means its end, as for a pod: its trials save within it and
    go on elsewhere. 0: SIGTERM means that only where the agent knows its end, and then 20 s."""
    leave_idle_seconds: float = 0.0
    """Time without work after which an agent ends by itself, so that a batch system can give its node to others. 0: never."""
    end_notice: str = ""
    """Cloud whose metadata service an agent asks for notices of its machine's end: aws or gcp. Empty: none is asked. See
    docs/nodes.md."""
    end_notice_url: str = ""
    """Address of that service. Empty: http://169.254.169.254, as both clouds have it."""
    auxiliary_trials_max: int = 100
    """Most trials without slots (`slots_per_trial: 0`) that an agent runs at once; others wait. 0: none."""

    def bus_password(self) -> str:
        """Password for NATS, from its file if one is set. Raises SettingsError."""
        if not self.nats_password_file:
            return self.nats_password
        try:
            return Path(self.nats_password_file).read_text().strip()
        except (OSError, ValueError) as error:
            raise SettingsError(
                f"TENUTO_NATS_PASSWORD_FILE is {self.nats_password_file}, which cannot be read: {error}."
            ) from None

    def metrics_address(self) -> tuple[str, int]:
        """Host and port of `metrics_listen`. Raises SettingsError."""
        found = _ADDRESS.fullmatch(self.metrics_listen)
        if found is None or int(found["port"]) > 65_535:
            raise SettingsError(
                f"TENUTO_METRICS_LISTEN is {self.metrics_listen!r}, but must be a host and a port, such as 0.0.0.0:9100."
            )
        return found["v6"] or found["host"], int(found["port"])

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] | None = None) -> Settings:
        """Settings from the process's environment, or from `environment`. Raises SettingsError that names the variable, its
        value and what is allowed."""
        environment = os.environ if environment is None else environment
        values: dict[str, object] = {}
        for item in fields(cls):
            variable = f"TENUTO_{item.name.upper()}"
            raw = environment.get(variable)
            if raw is None:
                continue
            kind = {"int": int, "float": float}.get(str(item.type), str)
            try:
                values[item.name] = kind(raw)
            except ValueError:
                raise SettingsError(f"{variable} is {raw!r}, but must be a number ({kind.__name__}).") from None
        return cls(**values)  # type: ignore[arg-type]

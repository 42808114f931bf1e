"""Settings of every process, read from `TENUTO_...` variables. Each has a default that suits the laptop cluster."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path


class SettingsError(ValueError):
    pass


@dataclass(frozen=True)
class Settings:
    """The variable of a field is `TENUTO_` and its name in capitals, such as TENUTO_DATABASE_URL."""

    database_url: str = ""
    """PostgreSQL for the services, as the service role: postgresql://tenuto_service@host:port/tenuto"""
    database_owner_url: str = ""
    """PostgreSQL as the owner, for migrations only. Empty: migrations are not run by this process."""
    nats_url: str = "nats://127.0.0.1:4222"
    nats_user: str = ""
    nats_password: str = ""
    nats_password_file: str = ""
    """File with the password, in place of `nats_password`: what is in a file is not in the process's environment."""
    agent_directory: str = ""
    """Where an agent keeps files of its own: its spool, and its runs. (TENUTO_DATA_DIRECTORY is no setting of a process: it names
    the directory of a whole cluster on this machine, for the command line.)"""
    shared_directory: str = ""
    """Seen by gateway, tracker and all agents: contexts/ (packed model directories) and checkpoints/."""
    stores_file: str = ""
    """What the operator declared of checkpoint stores, credentials included; services and agents read it, workers do not. Empty:
    there is only the store `shared`."""
    rest_host: str = "127.0.0.1"
    rest_port: int = 8080
    rest_token_file: str = ""
    """File with the bearer token of the REST door, readable by its owner only."""
    secret_key_file: str = ""
    """File with the key of the users' secrets, for gateway and launcher only; made by the first of them that needs it."""
    token_days: float = 90.0
    """Life of a user's token. 0: tokens do not expire."""
    requests_per_second_max: float = 100.0
    """Requests of one user to the REST door, whatever the token; ten seconds' worth may come at once. A tenth of what the door
    answers, so that one user's loop leaves room for others. 0: no limit."""
    context_bytes_max: int = 100 * 1024 * 1024
    """Largest packed model directory: code belongs there, data does not."""
    lease_seconds_max: float = 10.0
    """An agent that was not heard of for so long is lost: five missed heartbeats."""
    heartbeat_seconds: float = 2.0
    """An agent says that it lives, and what it runs, so often."""
    preempt_grace_seconds_max: float = 120.0
    """Time for a preempted worker to save its checkpoint before it is killed."""
    batch_events_max: int = 500
    """Inputs that a service decides on at once: larger batches gain little (one fsync is already shared), and cost latency."""
    snapshot_events: int = 5_000
    """A snapshot after so many inputs: start-up folds at most this tail."""
    log_stream_bytes_max: int = 1 << 30
    """JetStream keeps this much of the log; older events are read from PostgreSQL."""
    ingress_stream_bytes_max: int = 1 << 30
    """Reports waiting in JetStream; beyond it agents keep them in their spools."""
    trace_exporter: str = "none"
    """none, console or otlp (to OTEL_EXPORTER_OTLP_ENDPOINT)."""
    log_level: str = "INFO"
    anchor_targets: str = ""
    """Where the signed end of the log is noted, outside the database: addresses with spaces between, such as
    file:///mnt/elsewhere/anchors.jsonl, store://audit/anchors (a store of `tenuto store create`) or https://host/path. Empty:
    nowhere."""
    anchor_seconds: float = 3600.0
    """Between two such notes, while the log grows: what somebody who rules the database may cut off unnoticed. 0: only on
    `tenuto log anchor`."""
    anchor_key_file: str = ""
    """File of the gateway with the key that signs them, readable by its owner only; made at the first start."""
    pool: str = "default"
    agent_id: str = ""
    """Empty: the host's name."""
    warm_environments_max: int = 2
    """Processes with the framework imported that an agent keeps, one for each environment, to fork workers from; about 350 MB
    each with PyTorch, shared with their forks. 0: every worker starts cold."""
    agent_labels: str = ""
    """What experiments may ask for of an agent: `key=value`, several with commas between, such as `rack=7,disk=fast`. Agents with
    the same `rack` are near each other."""
    network_interface: str = ""
    """Name or address of the network interface by which an agent's ranks talk to those of other agents. Empty: the one on the way
    to NATS."""
    worker_user: str = ""
    """Account that an agent runs users' code as; the agent needs the right to change accounts. Empty: the agent's own, and then
    that code can read whatever the agent can. See docs/security.md."""
    cpu_slots: int = 0
    """CPU slots that an agent offers where there is no GPU. 0: one per core."""
    auxiliary_trials_max: int = 100
    """Trials without slots (`slots_per_trial: 0`) that an agent runs at once; more of them wait. 0: it takes none."""

    def bus_password(self) -> str:
        """Raises SettingsError."""
        if not self.nats_password_file:
            return self.nats_password
        try:
            return Path(self.nats_password_file).read_text().strip()
        except (OSError, ValueError) as error:
            raise SettingsError(
                f"TENUTO_NATS_PASSWORD_FILE is {self.nats_password_file}, which cannot be read: {error}."
            ) from None

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] | None = None) -> Settings:
        """Raises SettingsError that names the variable, its value and what is allowed."""
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

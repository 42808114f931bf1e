"""The sentences of decisions and of waiting. Each waiting sentence comes with its rule and its numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tenuto.schemas.base import JsonScalar
from tenuto.schemas.events.pool import AgentSlots
from tenuto.schemas.queue import expected_when
from tenuto.services.scheduler.policies.victims import Candidate
from tenuto.services.scheduler.state import Allocation, Experiment, Pool

Words = tuple[str, str, dict[str, JsonScalar]]
"""Rule, sentence, numbers."""
NEAR_ROOMS_SHOWN = 3


def slots(count: int) -> str:
    return "1 slot" if count == 1 else f"{count} slots"


def are(count: int) -> str:
    return "1 is" if count == 1 else f"{count} are"


def _of(count: int, total: int) -> str:
    return f"{count} of {total} {'is' if count == 1 else 'are'}"


def _where(parts: Sequence[AgentSlots]) -> str:
    where = ", ".join(f"{part.agent_id} ({len(part.slot_ids)})" for part in parts[:3])
    more = len(parts) - 3
    return where + (f" and {more} more agent{'s' * (more > 1)}" if more > 0 else "")


def grant(trial: str, why: str, wanted: int, free: int, parts: Sequence[AgentSlots]) -> str:
    there = "1 free slot" if free == 1 else f"{free} free slots"
    return f"Trial {trial} is next {why} and needs {wanted} of {there}; it gets slots of {_where(parts)}."


def lent(trial: str, experiment: Experiment, pool: str, parts: Sequence[AgentSlots]) -> str:
    return (
        f"Trial {trial} needs {slots(experiment.slots_per_trial)}; pool {experiment.pool} has none for it and pool {pool} "
        f"lends it slots of {_where(parts)}."
    )


def backfill(trial: str, wanted: int, parts: Sequence[AgentSlots]) -> str:
    return (
        f"Trial {trial} needs {slots(wanted)} and is expected to end before a larger gang that waits can start; "
        f"it gets slots of {_where(parts)}."
    )


def _trial(victim: Candidate) -> str:
    return f"{victim.allocation.experiment_id}-{victim.allocation.trial_number}"


def preempted(experiment: Experiment, trial: str, other: Experiment, victim: Candidate, missing: int) -> str:
    return (
        f"Trial {trial} of priority {experiment.priority} needs {slots(experiment.slots_per_trial)}, {missing} more than are "
        f"free or being freed; trial {_trial(victim)} of priority {other.priority} gives way with {victim.freed}."
    )


def overdue(experiment: Experiment, trial: str, victim: Candidate, missing: int, late_seconds: int) -> str:
    late = f"still runs {late_seconds} s after that time" if late_seconds else "still runs"
    return (
        f"Trial {trial} needs {slots(experiment.slots_per_trial)}, {missing} more than are free or being freed; trial "
        f"{_trial(victim)} started ahead of a larger gang because it was expected to end before that one could start; it {late} "
        f"and gives way with {victim.freed}."
    )


def above_share(
    experiment: Experiment, trial: str, victim: Candidate, missing: int, held: tuple[int, int], shares: tuple[int, int]
) -> str:
    """`held`, `shares`: slots of the experiment that wants some, and of the victim's. The trial may be one that runs and could
    be larger."""
    where = f"{held[0]} of its fair share of {slots(shares[0])}"
    if experiment.trials[int(trial.partition("-")[2])].allocation_id:
        wants = f"Experiment {experiment.experiment_id} has {where}; its running trials can use {slots(missing)} more than"
    else:
        needs = slots(experiment.slots_per_trial)
        wants = f"Trial {trial} of experiment {experiment.experiment_id}, which has {where}, needs {needs}, {missing} more than"
    other = victim.allocation.experiment_id
    return (
        f"{wants} are free or being freed; experiment {other} has {held[1]}, more than its share of {shares[1]}, and its trial "
        f"{_trial(victim)} gives way with {victim.freed}."
    )


def guest(experiment: Experiment, trial: str, victim: Candidate, missing: int, home: str) -> str:
    return (
        f"Trial {trial} needs {slots(experiment.slots_per_trial)}, {missing} more than are free or being freed; trial "
        f"{_trial(victim)} of pool {home} has slots that were lent to it and gives way with {victim.freed}."
    )


def shrinks(wanted_by: Experiment, missing: int, allocation: Allocation, before: int, after: int) -> str:
    trial = f"{allocation.experiment_id}-{allocation.trial_number}"
    return (
        f"Experiment {wanted_by.experiment_id} needs {slots(missing)} more than are free or being freed; trial {trial} saves a "
        f"checkpoint, gives up {before - after} of {slots(before)} and goes on with {after}."
    )


def both_shares(experiments: tuple[int, int], held: tuple[int, int], shares: tuple[int, int]) -> str:
    """Of the one that wants slots, and of the one that has more than its share."""
    return (
        f" Experiment {experiments[0]} has {held[0]} of its fair share of {shares[0]}, and experiment {experiments[1]} has "
        f"{held[1]}, more than its share of {shares[1]}."
    )


def grows(trial: str, before: int, after: int, free: int) -> str:
    there = "1 slot is free and nobody waits for it" if free == 1 else f"{free} slots are free and nobody waits for them"
    return f"{there}; trial {trial} saves a checkpoint and goes on with {slots(after)} instead of {before}."


def grown(granted: str, size: int) -> str:
    return f"{granted} Nobody waits for more, so it has {slots(size)} in all."


def goes_on(trial: str, before: int, after: int) -> str:
    return f"Trial {trial} was resized and has released its {slots(before)}; it goes on with {slots(after)} kept for it."


def starts_without_slots(trial: str, experiment: Experiment, pool: str, agent_id: str, count: int) -> str:
    lent = "" if pool == experiment.pool else f" of pool {pool}, as pool {experiment.pool} has no room for it"
    return f"Trial {trial} needs no slots; it starts on agent {agent_id}{lent}, where {count} such trials run."


def waits_without_slots(experiment: Experiment, pool: Pool, agents: int, trials_max: int) -> Words:
    needs = f"needs no slots{_kind(experiment)}, but"
    if not agents:
        text = f"{needs} pool {pool.name} has no agent in service that may run it; it waits for one"
        return ("no_room", text, {"slots_wanted": 0, "agents": 0})
    those = "the only agent" if agents == 1 else f"each of the {agents} agents"
    text = f"{needs} {those} of pool {pool.name} that may run it has as many such trials as it takes ({trials_max} in all)"
    return ("agents_full", text, {"slots_wanted": 0, "agents": agents, "trials_max": trials_max})


def _kind(experiment: Experiment) -> str:
    asked = experiment.constraints
    if asked is None:
        return ""
    words = {"agent": " on one agent", "rack": " in one rack", "any": ""}[asked.locality]
    if asked.device:
        words += f" with device {asked.device}"
    if asked.labels:
        words += f" labelled {', '.join(asked.labels)}"
    if asked.exclude:
        words += f" outside {', '.join(asked.exclude[:3])}"
    return words


def _needs(experiment: Experiment) -> str:
    return f"needs {slots(experiment.slots_per_trial)}{_kind(experiment)}"


def too_large(experiment: Experiment, pool: Pool) -> Words:
    text = f"{_needs(experiment)}, but all agents of pool {pool.name} together offer {pool.capacity}; it waits for more agents"
    return ("too_large", text, {"slots_wanted": experiment.slots_per_trial, "slots_offered": pool.capacity})


def no_room(experiment: Experiment, pool: Pool) -> Words:
    text = f"{_needs(experiment)}, which no agents of pool {pool.name} can offer even when idle; it waits for other agents"
    return ("no_room", text, {"slots_wanted": experiment.slots_per_trial, "slots_offered": pool.capacity})


def kept_for(experiments: Sequence[int]) -> str:
    names = ", ".join(str(number) for number in experiments[:3])
    more = f" and {len(experiments) - 3} more" if len(experiments) > 3 else ""
    return f"kept for experiment{'s' if len(experiments) > 1 else ''} {names}{more}"


def no_room_yet(
    experiment: Experiment,
    sizes: Sequence[tuple[int, int, tuple[str, ...]]],
    end_us: int | None,
    keepers: Sequence[int] = (),
    ends: str = "",
) -> Words:
    """`sizes`: (free, being freed, agents) of each room. `keepers`: experiments for which some of the free slots are kept.
    `ends`: the trial whose end makes it fit at `end_us`."""
    most = max(size[0] for size in sizes)
    near = [room for free, _, room in sizes if free == most]
    if len(sizes) == 1:
        text = f"{_needs(experiment)}; {are(most)} free there"
    else:
        what = {"agent": "agent", "rack": "rack"}.get(experiment.constraints.locality if experiment.constraints else "", "set")
        have = f"{len(near)} {what} has" if len(near) == 1 else f"{len(near)} {what}s have"
        text = f"{_needs(experiment)}; {have} {most} free, none has more"
    if keepers:
        text += f"; slots there are {kept_for(keepers)}"
    numbers: dict[str, JsonScalar] = {"slots_wanted": experiment.slots_per_trial, "slots_free_most": most, "expected_us": end_us}
    return ("no_room_yet", *_expected(text, numbers, ends))


def _expected(text: str, numbers: dict[str, JsonScalar], ends: str) -> tuple[str, dict[str, JsonScalar]]:
    """The time itself is a number: readers show it in their own time zone."""
    return (f"{text}{expected_when(ends)}", {**numbers, "expected_trial": ends}) if ends else (text, numbers)


def soon(experiment: Experiment, free: int) -> Words:
    text = f"{_needs(experiment)}; {are(free)} free and the others are being freed for it"
    return ("soon", text, {"slots_wanted": experiment.slots_per_trial, "slots_free": free})


def shrinking(experiment: Experiment, trials: int) -> Words:
    others = "1 elastic trial gives" if trials == 1 else f"{trials} elastic trials give"
    text = f"{_needs(experiment)}; {others} up slots for it at a checkpoint"
    return ("preempting", text, {"slots_wanted": experiment.slots_per_trial, "victims": trials})


def preempting(experiment: Experiment, victims: int) -> Words:
    others = "1 running trial saves" if victims == 1 else f"{victims} running trials save"
    text = f"{_needs(experiment)}; {others} a checkpoint and give way to it"
    return ("preempting", text, {"slots_wanted": experiment.slots_per_trial, "victims": victims})


def held(
    experiment: Experiment,
    free: int,
    leaving: int,
    pool: Pool,
    start_us: int | None,
    kept: Mapping[int, int] | None = None,
    ends: str = "",
) -> Words:
    """`kept`: experiment -> slots beside the free ones that are held aside for it. `ends`: the trial whose end makes it fit at
    `start_us`."""
    aside = {number: count for number, count in (kept or {}).items() if count}
    text = f"{_needs(experiment)}; {_of(free + sum(aside.values()), pool.capacity)} free"
    if aside:
        text += f", {sum(aside.values())} of them {kept_for(sorted(aside))}"
    if leaving:
        text += f", {are(leaving)} being freed"
    text += ", and no running trial has to give way to it"
    numbers: dict[str, JsonScalar] = {
        "slots_wanted": experiment.slots_per_trial,
        "slots_free": free,
        "slots_leaving": leaving,
        "slots_kept": sum(aside.values()),
        "expected_us": start_us,
    }
    return ("held", *_expected(text, numbers, ends))


def reserves(experiment: Experiment, trial: str) -> str:
    return (
        f"Trial {trial} needs {slots(experiment.slots_per_trial)}, which are not free, and nobody has to give way to it; it is "
        f"the first of priority {experiment.priority} until it has them, whatever others hold then."
    )


def behind(experiment: Experiment) -> Words:
    text = f"{_needs(experiment)}; the free slots are kept for those ahead of it"
    return ("behind", text, {"slots_wanted": experiment.slots_per_trial})


def leaving(trials: int, count: int) -> str:
    if trials == 1:
        return f"1 trial gives up {slots(count)} and waits for others as soon as its workers have left"
    return f"{trials} trials give up {slots(count)} and wait for others as soon as their workers have left"


def limit(owner: str, used: int, most: int) -> Words:
    return ("limit", f"{owner} uses {slots(used)} and may use {most}", {"slots_used": used, "slots_max": most})


def quota_kept(owner: str, ahead: Experiment) -> Words:
    text = f"what is left of the quota of {owner} is kept for experiment {ahead.experiment_id}, which is ahead of it"
    return ("limit", text, {"ahead_experiment": ahead.experiment_id, "slots_wanted_ahead": ahead.slots_per_trial})


def quota_preempted(
    experiment: Experiment, trial: str, other: Experiment, victim: Candidate, missing: int, owner: str, most: int
) -> str:
    victim_trial = f"{other.experiment_id}-{victim.allocation.trial_number}"
    return (
        f"Trial {trial} of priority {experiment.priority} needs {slots(missing)} more of the {most} that {owner} may use; trial "
        f"{victim_trial} of priority {other.priority} counts there, too, and gives way with {victim.freed}."
    )


def share(experiment: Experiment, used: int, target: int, turn_us: int | None) -> Words:
    """`turn_us`: when it has a turn at the latest, if its gang is larger than its share."""
    text = f"{_needs(experiment)}; it uses {slots(used)}, and its fair share is {target} now"
    numbers: dict[str, JsonScalar] = {"slots_wanted": experiment.slots_per_trial, "slots_used": used, "slots_share": target}
    if turn_us is not None:
        text += ", less than one gang: it gets its slots in turn with the others"
        numbers["expected_us"] = turn_us
    return ("share", text, numbers)

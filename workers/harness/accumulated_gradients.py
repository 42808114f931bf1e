"""Gradients of several batches for one step of an optimizer: what is said where that step comes late, or never."""

from __future__ import annotations

from tenuto.workers.errors import WillRepeat


def doubt(setting: str, gathered: int, full_batches: int) -> str | None:
    """Sentence about the batches at the end that no step uses. `setting`: name of what asks for a step after `gathered` batches.
    `full_batches`: full length of a trial. Raises WillRepeat if no step would ever come."""
    if gathered > full_batches:
        raise WillRepeat(
            f"{setting}: the gradients of {gathered} batches are gathered for a step, but the trial's full length is "
            f"{batches(full_batches)}, so no optimizer would ever step: give a smaller number, or a longer searcher.max_length."
        )
    if rest := full_batches % gathered:
        return (
            f"{setting}: the gradients of the last {batches(rest)} are used by no step, as the trial's full length of "
            f"{batches(full_batches)} is no multiple of {gathered}"
        )
    return None


def untrained(setting: str, gathered: int, trained: int) -> str | None:
    """Sentence about a validation after `trained` batches, if no optimizer has stepped yet."""
    if not 0 < trained < gathered:
        return None
    return (
        f"the validation after {batches(trained)} measures the model as it was made: its optimizers step first after "
        f"{gathered} ({setting})"
    )


def epoch_that_never_ends(hook: str, full_batches: int, epoch_batches: int) -> str:
    return f"{hook} is never called: the trial's full length is {batches(full_batches)}, and an epoch has {epoch_batches}"


def batches(count: int) -> str:
    return "1 batch" if count == 1 else f"{count} batches"

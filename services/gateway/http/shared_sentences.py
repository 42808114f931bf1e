"""Sentences for users that several doors say."""

from __future__ import annotations


def no_such(what: str) -> str:
    """Sentence that a thing does not exist. `what`: the kind and the id, such as "trial 3-7"."""
    kind, _, name = what.partition(" ")
    lists = {
        "experiment": "`tenuto exp ls` lists those that there are",
        "trial": f"`tenuto exp describe {name.partition('-')[0]}` lists those of that experiment",
        "checkpoint": "`tenuto ckpt ls` lists those that there are",
        "parked": "`tenuto parked ls` lists those that there are",
        "workspace": "`tenuto workspace ls` lists those that you see",
        "role": "`tenuto role ls` lists those that there are",
        "webhook": "`tenuto webhook ls` lists those that there are",
        "agent": "`tenuto agent ls` lists those that there are",
        "slot": "`tenuto agent ls` shows how many each agent has, counted from 0",
    }
    return f"There is no {what}; {lists[kind]}." if kind in lists else f"There is no {what}."

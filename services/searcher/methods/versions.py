"""Versions of the rules of all search methods.

A rule that would decide recorded inputs differently is a new version beside the old one, never a change of it: an experiment is
searched to its end by the rules it was started with. The methods ask `Rules.rule_version`, the folds `Experiment.rule_version`.
"""

from __future__ import annotations

RULE_VERSION = 6
"""Version of the rules of experiments that start now."""
RULE_VERSIONS_KNOWN = (5, 6)
"""Versions whose rules are in this code. Versions 1 to 4 preceded the first release; none of their logs can be read any more.

Since 6 a validation beyond several rungs counts at each of them, a rung of `sha` and `hyperband` lets go on as many as its
bracket has planned, and a population of `pbt` stays as large as it was.
"""
KEEPS_POPULATION = 6
"""First version by which `pbt` makes a copy for each place of its population, also of a parent without a checkpoint."""
PASSES_RUNGS = 6
"""First version by which a trial that is further than its target counts at each rung up to its place."""

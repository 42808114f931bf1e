"""Versions of the rules of all search methods.

A rule that would decide recorded inputs differently is a new version beside the old one, never a change of it: an experiment is
searched to its end by the rules it was started with. The methods ask `Rules.rule_version`, the folds `Experiment.rule_version`.
"""

from __future__ import annotations

RULE_VERSION = 5
"""Of experiments that start now."""
RULE_VERSIONS_KNOWN = (1, 2, 3, 4, 5)
"""Version 2 says the bracket and the parent of each new trial; its decisions for the methods of version 1 are the same.
Version 3 goes on where a trial cannot be drawn at first, takes each point of a grid once, and walks on along the Sobol sequence
where a constraint forbids a point. It fills the very place of a refused trial in sha, hyperband and pbt, keeps all scores of a
rung and shares added trials among the brackets, lets bohb learn from trials without a score, and records the value that a stop
was compared with.
Version 4 lets the first trial at a rung wait for a second one in the stopping form of asha and bohb.
Version 5 records the numbers of a decision and no sentence."""

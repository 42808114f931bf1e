"""`tenuto.run_search`: a search of a few lines from a notebook or a script."""

from tenuto.searching.run import run_search

__all__ = ["run_search"]

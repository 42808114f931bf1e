"""Rewrites experiment configurations of Determined, old forms and those of 0.38, into Tenuto's. Pure: `imports.py` reads and
writes the files."""

from tenuto.cli.from_determined.conversion import Conversion, convert
from tenuto.cli.from_determined.notes import Kind, Note

__all__ = ["Conversion", "Kind", "Note", "convert"]

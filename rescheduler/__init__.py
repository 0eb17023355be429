"""Drain on-demand nodes whose pods fit on spot nodes, and remove the empty nodes."""

from typing import Final

#: The version of this program, the same as in setup.cfg. Reading it from the metadata of the installed package takes
#: longer than the rest of ``rescheduler version``.
VERSION: Final = "0.1.0"

"""Drain on-demand nodes whose pods fit on spot nodes, and remove the empty nodes."""

#: The version of this program, the same as in setup.cfg. Reading it from the metadata of the installed package takes
#: longer than the rest of ``rescheduler version``. Nothing is imported here; see :mod:`rescheduler.__main__`.
VERSION = "0.1.0"

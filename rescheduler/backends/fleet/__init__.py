"""Machines that a system's API lists, makes and ends one by one; what such systems share as cloud providers.

A system has no target size of its own: the size is the number of machines that are neither ending nor ended. So
ending a machine is the only order, twice is as good as once, and nothing can be lowered twice.
"""

"""The common parts of providers whose API lists, creates and deletes individual machines.

Such a system has no target size: the size is the number of machines that are neither being deleted nor deleted. So
deleting a machine is a single idempotent order, and no size can be lowered twice.
"""

"""Common parts of providers for systems whose API lists, creates and deletes machines one by one.

Such a system has no target size: the size is the number of machines that are neither being deleted nor deleted. So
deleting a machine is the only order, it is idempotent, and no size can be lowered twice.
"""

"""The answers of planning, one file each, made of :mod:`rescheduler.planning.question`."""

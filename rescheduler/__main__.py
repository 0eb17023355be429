"""``python -m rescheduler``."""

from rescheduler.cli import main

main()

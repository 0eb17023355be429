"""The housekeeping loop: rounds of planning and draining, and the assembly of the daemon."""

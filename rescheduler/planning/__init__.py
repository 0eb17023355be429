"""Decide which node to drain, and where its pods fit. Pure: no clock, no I/O."""

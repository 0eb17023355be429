"""One drain as a state machine: events in, actions out. Pure: no clock, no I/O."""

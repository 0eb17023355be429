"""A cluster in memory, in which the daemon runs in virtual time: one event queue, one seed, no sleeping."""

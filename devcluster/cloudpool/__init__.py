"""A reference cloudpool: the REST API, version 5, for simulated machines, optionally with Nodes that kwok simulates.

It reproduces the behavior of the elastisys server:

- The view of the pool is up to one refresh interval old. It is refreshed before a pool update, not after it.
- The pool converges to the desired size in the background, and does not change single machines during an update.
- The desired size is not stored.
- A request may fail after it took effect.

Machines and configuration are stored in an SQLite file. The states of machines are functions of time, so tests control
them with a fake clock.
"""

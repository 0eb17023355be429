"""A reference cloudpool: the REST API, version 5, over machines that are made up, or Nodes that kwok plays.

It keeps to the behaviour of elastisys' own server: a view of the pool that is up to a refresh interval old, and is
refreshed before the pool acts, not after; sizes that are worked towards in the background, while nothing else changes
machines; a desired size that is not stored; errors after the deed. Its machines and its configuration are an SQLite
file; its machines' states are functions of the time, so a clock that tests hold in hand moves the whole world.
"""

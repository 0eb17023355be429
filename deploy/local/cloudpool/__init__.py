"""A reference cloudpool: the REST API, version 5, over machines that are made up, or Nodes that kwok plays.

It keeps to the behaviour of elastisys' own server: a view of the pool that is up to a refresh interval old, sizes
that are worked towards in the background, errors after the deed. Its state is an SQLite file; its machines' states
are functions of the time, so a clock that tests hold in hand moves the whole world.
"""

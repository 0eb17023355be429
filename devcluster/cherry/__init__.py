"""A stand-in for the Cherry Servers API, with projects, servers, plans, prices, spot notices, paging and rate limits.

It follows the known parts of the API: paths, fields, states, statuses and error formats. Its state is an SQLite file.
The state of a server is a function of time, so tests control it with a fake clock.
"""

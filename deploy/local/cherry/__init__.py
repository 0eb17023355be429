"""A stand-in for Cherry Servers' API: servers of projects, plans, prices, spot notices, pages and rate limits.

It keeps to what is known of the API (paths, fields, states, statuses, error forms). Its state is an SQLite file, and a
server's state is a function of the time, so a clock that tests hold in hand moves the whole world.
"""

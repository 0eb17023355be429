"""A stand-in for the StackPointCloud API of a cluster: node roles, etcd states, pools, and both ways to add nodes.

It follows the known parts of the API: paths, fields, states, and responses that list the whole cluster. Its state is an
SQLite file. The state of a node is a function of time, so tests control it with a fake clock.
"""

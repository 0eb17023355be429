"""A stand-in for StackPointCloud's API of one cluster: nodes with roles and etcd states, pools, both ways to add nodes.

It keeps to what is known of the API (paths, fields, states, the answer that lists the whole cluster). Its state is an
SQLite file, and a node's state is a function of the time.
"""

"""The demos: on a local control plane whose on-demand nodes are machines of the reference cloudpool.

``make demo``: the daemon drains nodes, and the pool terminates their machines. ``make demo-proxy``: a client scales the
pool down and up through the proxy. Both print tables of the results.
"""

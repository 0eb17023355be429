"""The demos, on a real local control plane, whose on-demand nodes are machines of the reference cloudpool.

``make demo``: the daemon empties nodes and hands them to the pool. ``make demo-proxy``: the pool shrinks and grows
through the proxy. Tables tell what they did.
"""

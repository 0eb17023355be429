"""The node manager: groups of virtual nodes, which Liqo creates from slices of other clusters' resources.

A machine consists of one of our ResourceSlices, the VirtualNode that Liqo creates from it, and the VirtualNode's Node.
All three have the same name. The slice names its group, so a restarted node manager finds all of its machines in the
cluster. Machines without a slice (reservations that wait for a peering) are stored in a database.
"""

"""The node manager: groups of virtual nodes, which Liqo makes of slices of other clusters' resources.

A machine is a ResourceSlice of ours, the VirtualNode that Liqo makes of it, and the Node that comes of that; all
three bear one name. The slice is the record: it names its group, so a node manager that starts anew finds all its
machines in the cluster. What has no slice yet (a reservation whose peering is still to be made) is in a database.
"""

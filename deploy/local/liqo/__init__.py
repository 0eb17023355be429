"""A controller that plays Liqo's part on the local control plane, without a second cluster.

ResourceSlices are accepted or denied, become VirtualNodes, and these become Nodes that kwok keeps Ready; what is
deleted is drained first, with the Eviction API, as Liqo does. Peerings are told of and not made: there is nobody at
the other end.
"""

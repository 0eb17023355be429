"""A controller that plays Liqo's part on the local control plane, without a second cluster.

It does what Liqo v1.2 does, and what v1.0 and v1.1 do where they do not differ. ResourceSlices are accepted or denied,
become VirtualNodes, and these become Nodes that kwok keeps Ready, beside a Deployment for each virtual kubelet. What is
deleted is drained first, with the Eviction API. Identities become kubeconfig Secrets, and ForeignClusters say what
there is of a peering. Nobody is at the other end: what a provider answers is said here, and consumers have slices here
from the beginning. `liqoctl.py` makes and ends peerings with the requests of the real liqoctl.
"""

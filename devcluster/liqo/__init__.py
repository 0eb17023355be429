"""A controller that simulates Liqo on the local control plane, without a second cluster.

It behaves like Liqo v1.2, and like v1.0 and v1.1 where they do not differ. It accepts or denies ResourceSlices, and
creates a VirtualNode for each accepted slice, and a Node and the Deployment of a virtual kubelet for each VirtualNode.
kwok keeps the Nodes Ready. Before a Node is deleted, it is drained with the Eviction API. The controller creates
kubeconfig Secrets for Identities, and ForeignClusters with the status of each peering. It also generates the responses
of providers. Consumers have slices in this cluster from the start. `liqoctl.py` creates and deletes peerings with the
requests of the real liqoctl.
"""

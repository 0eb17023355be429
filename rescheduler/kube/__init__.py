"""The client of the Kubernetes API: reflectors, cluster state, Lease, Events, and stored memory."""

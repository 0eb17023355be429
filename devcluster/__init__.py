"""A real Kubernetes control plane on one machine, without containers and without root.

It consists of etcd, kube-apiserver, kube-controller-manager, kube-scheduler, and kwok in place of kubelets. Start it
with `plane.ControlPlane`, or with `python -m devcluster` on the command line.
"""

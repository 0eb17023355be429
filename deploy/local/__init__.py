"""A real Kubernetes control plane on one machine, without containers and without root.

etcd, kube-apiserver, kube-controller-manager, kube-scheduler, and kwok in place of kubelets.
`plane.ControlPlane` runs them, `python -m deploy.local` is the same for a terminal.
"""

"""Proxies that inject faults between a client and its server, for HTTP (kube-apiserver, cloudpool) and plain TCP."""

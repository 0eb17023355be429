"""Proxies that put faults between a client and its server: for HTTP (kube-apiserver, cloudpool) and for plain TCP."""

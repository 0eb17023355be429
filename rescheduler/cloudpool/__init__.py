"""Cloudpools (elastisys' REST API, version 5): the cloud provider, and the proxy in front of a pool."""

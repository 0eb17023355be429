"""Room on order: new spot nodes for the pods of an on-demand node, which the cluster's autoscaler adds. Pure."""

"""Read the objects of a cluster from the output of ``kubectl get -o json``."""

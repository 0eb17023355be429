"""What one round knows, as one value: the objects of the cluster, and what the process knows besides."""

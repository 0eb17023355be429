"""Plans of a changed cluster, and the changes that would free more nodes."""

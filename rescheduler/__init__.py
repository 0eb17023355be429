"""Moves the pods of on-demand nodes to spot nodes, and gives the emptied nodes back."""

"""Drain on-demand nodes whose pods fit on spot nodes, and remove the empty nodes."""

"""The execution of one drain: its actions on the cluster and at the provider, and their results as events."""

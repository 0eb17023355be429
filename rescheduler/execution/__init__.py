"""Perform one drain: its actions on the cluster and the provider, and what they changed as events."""

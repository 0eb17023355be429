"""Indexes of the placed pods, shared by the plugins and updated with every placement."""

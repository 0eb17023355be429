"""A cloudpool (REST API v5) as a system that owns machines."""

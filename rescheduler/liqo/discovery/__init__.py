"""Which clusters share their resources: kept in a database, told by Secrets and by the clusters' own agents."""

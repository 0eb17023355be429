"""The discovery server: a database of clusters that share resources, described by Secrets and the clusters' agents."""

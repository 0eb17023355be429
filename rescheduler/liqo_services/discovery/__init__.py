"""The discovery server: a database of the clusters that share resources, fed by Secrets and by the clusters' agents."""

"""Events of the program as values, and their listeners: logs, metrics, Kubernetes Events, and the status page."""

"""The common parts of the cloud stand-ins: an HTTP server, machines in SQLite, Nodes that kwok simulates."""

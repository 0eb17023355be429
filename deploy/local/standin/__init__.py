"""What the stand-ins of clouds share: a server on a port, machines in SQLite, Nodes that kwok plays."""

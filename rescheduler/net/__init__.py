"""HTTP clients and servers, TLS, credentials, and configuration files, for all other parts."""

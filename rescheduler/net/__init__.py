"""HTTP clients and servers, TLS, credentials, and configuration files, shared by all other packages."""

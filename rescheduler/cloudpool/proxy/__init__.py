"""The cloudpool proxy: it drains nodes before the pool terminates their machines."""

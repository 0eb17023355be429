"""Prices of nodes, and the ledger of savings."""

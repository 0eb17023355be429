"""``make demo``: the daemon empties on-demand nodes of a real local control plane, and a table tells what it did."""

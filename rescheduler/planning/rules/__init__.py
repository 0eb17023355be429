"""Which nodes and pods may be drained: each rule has a reason."""

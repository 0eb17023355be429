"""Where the pods of drained nodes fit on the targets, and where the scheduler would place them."""

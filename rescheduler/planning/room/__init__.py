"""Orders of spot room: new spot nodes for the pods of an on-demand node, which an autoscaler adds. Pure."""

"""The kube-scheduler's filter and score plugins over a columnar snapshot of the cluster. Pure: no clock, no I/O."""

"""The kube-scheduler's filter plugins over a columnar snapshot: values in, verdicts out, no I/O."""

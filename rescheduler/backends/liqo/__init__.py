"""Virtual nodes of Liqo, through a node manager: ours (``rescheduler liqo node-manager``) or Liqo's first one."""

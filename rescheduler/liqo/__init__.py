"""Services for Liqo: discovery, which lists clusters, and the node manager, which creates virtual nodes from them."""

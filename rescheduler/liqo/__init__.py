"""The parts that stand between us and Liqo: discovery knows clusters, the node manager makes virtual nodes of them."""

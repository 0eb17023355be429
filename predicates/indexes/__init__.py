"""Views of the placed pods that several questions share, kept right by every placement."""

"""What keeps a release from being made."""


class ReleaseError(Exception):
    """One clear line for a person."""

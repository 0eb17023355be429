"""The error of a failed release."""


class ReleaseError(Exception):
    """The release cannot be built. The message is one line."""

"""The version of this program, the same as in setup.cfg.

It is a constant because reading it from the metadata of the installed package takes longer than the rest of
``rescheduler version``.
"""

from typing import Final

VERSION: Final = "0.1.0"

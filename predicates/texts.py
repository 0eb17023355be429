"""What texts from outside may be: the forms of names, UIDs and kinds, their lengths, and how they are shown.

The API server checks the names of objects, but not the references to owners nor the values of annotations: whoever may
create a pod writes them.
"""

import difflib
import json
import re
from collections.abc import Iterable
from itertools import islice
from typing import Final

#: The API server's limit for names (``IsDNS1123Subdomain``), in characters.
LONGEST_NAME: Final = 253
#: UIDs of real objects have 36 characters, and those of mirror pods 32.
LONGEST_UID: Final = 64
#: The longest quantity or duration. Longer texts are rejected before a parser sees them.
LONGEST_AMOUNT: Final = 64
#: A text that somebody else wrote is shown with at most this many characters.
LONGEST_SHOWN: Final = 256
#: The longest reason of a plugin, which may quote several texts.
LONGEST_REASON: Final = 1024
#: The API server's limit for kinds and versions (``IsDNS1035Label``), in characters.
_LONGEST_LABEL: Final = 63

#: Joins emoji, and letters of some scripts.
_JOINER: Final = "\u200d"

#: What encoders of JSON may leave as it is: anything but ASCII, and DEL.
_NOT_ASCII: Final = re.compile(r"[^\x00-\x7e]+")

_LABEL: Final = "[a-z0-9](?:[-a-z0-9]*[a-z0-9])?"
_NAME: Final = re.compile(rf"{_LABEL}(?:\.{_LABEL})*")
_KIND: Final = re.compile("[A-Za-z](?:[-A-Za-z0-9]*[A-Za-z0-9])?")
_VERSION: Final = re.compile("[a-z](?:[-a-z0-9]*[a-z0-9])?")
_UID: Final = re.compile(r"[-A-Za-z0-9_.:/]*")


def is_name(text: str) -> bool:
    """Return whether *text* can be the name of an object: a DNS subdomain."""
    return len(text) <= LONGEST_NAME and _NAME.fullmatch(text) is not None


def is_version(text: str) -> bool:
    """Return whether *text* can be the version of an API: a DNS label that begins with a letter."""
    return len(text) <= _LONGEST_LABEL and _VERSION.fullmatch(text) is not None


def reference_fault(kind: str, name: str, uid: str, api_version: str) -> str:
    """Return which field of a reference no object can have, and what is expected; "" if an object can have them all.

    An empty version or UID is no fault: they are left out of pods that are written by hand.
    """
    group, slash, version = api_version.rpartition("/")
    if len(kind) > _LONGEST_LABEL or not _KIND.fullmatch(kind):
        return f"kind {quoted(kind)}: expected at most {_LONGEST_LABEL} letters, digits and '-'"
    if not is_name(name):
        return f"name {quoted(name)}: expected a DNS subdomain of at most {LONGEST_NAME} characters"
    if len(uid) > LONGEST_UID or not _UID.fullmatch(uid):
        return f"uid {quoted(uid)}: expected at most {LONGEST_UID} letters, digits and '-'"
    if api_version and not (is_version(version) and (not slash or is_name(group))):
        return f"apiVersion {quoted(api_version)}: expected one such as apps/v1"
    return ""


def printable(text: str) -> str:
    """Return *text* in one line: control characters, line ends, colors and marks of direction become ``?``."""
    if text.isprintable():
        return text
    return "".join(character if character.isprintable() or character == _JOINER else "?" for character in text)


def shown(text: str, longest: int = LONGEST_SHOWN) -> str:
    """Return *text*, which somebody else wrote, printable and with at most *longest* characters."""
    return printable(text if len(text) <= longest else f"{text[: longest - 1]}…")


def escaped(json_text: str) -> str:
    """Return *json_text* with escapes for all characters that are not printable. It decodes to the same value."""
    return _NOT_ASCII.sub(lambda found: found[0] if found[0].isprintable() else json.dumps(found[0])[1:-1], json_text)


def one_line(text: str) -> str:
    """Return :func:`shown` of *text* with single spaces instead of line ends, for logs, Events and error messages."""
    return shown(" ".join(text.split()))


def quoted(text: str) -> str:
    """Return :func:`shown` in quotation marks."""
    return f"'{shown(text)}'"


#: How much a word with a typing error is like the one that is meant.
_TYPING_ERROR: Final = 0.85

#: At most this many names are compared with one that does not exist.
_MOST_COMPARED: Final = 5_000


def similar(word: str, names: Iterable[str], least: float = 0.6) -> str:
    """Return the one of *names* that *word* is likely to mean, or "". Both are alike to the degree *least*, up to 1."""
    return next(iter(difflib.get_close_matches(word, islice(names, _MOST_COMPARED), n=1, cutoff=least)), "")


def did_you_mean(word: str, names: Iterable[str]) -> str:
    """Return a question for the end of a message about *word*, which is none of *names*; "" if none is similar."""
    near = similar(word, names, _TYPING_ERROR)
    return f"; did you mean {near}?" if near else ""

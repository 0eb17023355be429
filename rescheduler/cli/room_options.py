"""The options for making room on spot nodes."""

from datetime import timedelta
from typing import Final

import click

from rescheduler.cli.go_flags import DurationType, Option, Parsed
from rescheduler.cli.options import group
from rescheduler.settings import PAUSE_IMAGE, MakeRoom, RoomSettings

_MOST: Final = 1000
_LONGEST_IMAGE: Final = 255


def _image(text: str) -> str:
    if not text or len(text) > _LONGEST_IMAGE or not text.isprintable() or " " in text:
        raise ValueError(f"{text!r}: expected an image, such as {PAUSE_IMAGE}")
    return text


def _room(
    make_room: str,
    max_placeholders: int,
    room_timeout: timedelta,
    placeholder_image: str,
    max_spot_nodes_per_hour: int,
) -> RoomSettings:
    mode = MakeRoom(make_room)
    return RoomSettings(mode, max_placeholders, room_timeout, placeholder_image, max_spot_nodes_per_hour)


#: Passes ``room: RoomSettings`` to the command.
room_options = group(
    "room",
    _room,
    (
        Option(
            "--make-room",
            click.Choice([mode.value for mode in MakeRoom]),
            default=MakeRoom.OFF.value,
            help="How room is made for an on-demand node whose pods do not fit on the spot nodes, if no node can be "
            "drained. placeholders: pods of the same shape are created in the namespace spot-rescheduler-room, so that "
            "the cluster's autoscaler adds spot nodes; the drain begins when all of them run there. provider: "
            "spot nodes are requested from the cloud provider (--cloud-provider); the drain begins when they are "
            "Ready. off: no room is made.",
        ),
        Option(
            "--max-placeholders",
            click.IntRange(1, _MOST),
            default=50,
            help="Maximum number of placeholders. No room is made for nodes with more pods to move.",
        ),
        Option(
            "--room-timeout",
            DurationType(least=timedelta(seconds=1)),
            default="15m",
            help="How long placeholders may take to run on spot nodes. After that, they are removed and no others are "
            "created for 15m, which doubles with each consecutive timeout, up to 4h.",
        ),
        Option(
            "--placeholder-image",
            Parsed(_image, "image"),
            default=PAUSE_IMAGE,
            metavar="IMAGE",
            help="Image of placeholders, for clusters that cannot pull the default. It must run without arguments as a "
            "user that is not root.",
        ),
        Option(
            "--max-spot-nodes-per-hour",
            click.IntRange(1, _MOST),
            default=10,
            help="Maximum number of spot nodes requested from the cloud provider within an hour, with "
            "--make-room=provider.",
        ),
    ),
)

"""Reasons as they are shown to whoever may read the index: without paths of this machine."""

from __future__ import annotations

import re

# Where an absolute path begins: not inside of a word, an address or a relative path.
_START = re.compile(r"(?<![\w./:~-])/(?=[^\s/])")
_PLACE_IN_FILE = re.compile(r"@\d+$")


def without_paths(reason: str) -> str:
    """Remove absolute paths from the reason why an item was left out.

    A path may have spaces and colons, so it is taken to reach up to the last slash of the text;
    of a reason that begins with the path of its file, the file's name is removed as well.

    Args:
        reason: as a build wrote it, e.g. ``/data/a b.jpg: not an image``.
    """
    start = _START.search(reason)
    if start is None:
        return reason
    begin, end = start.start(), reason.rindex("/") + 1
    name, colon, rest = reason[end:].partition(": ")
    if begin == 0 and colon:
        return rest
    return reason[:begin] + _PLACE_IN_FILE.sub("", name) + colon + rest

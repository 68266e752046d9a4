"""What is skipped in a folder of photos without being named one by one, and how much that is.

Left out are hidden files and folders, folders in which other programs keep thumbnails or deleted
files, what the user excludes, and files that are no photos: documents, videos.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from fnmatch import fnmatchcase
from pathlib import PurePosixPath

# What Synology, QNAP, Windows, macOS and Lightroom keep among photos: thumbnails, deleted
# files.
_OF_PROGRAMS = (
    *("@eaDir", "#recycle", "#snapshot"),
    *("@__thumb", "@Recycle", "@Recently-Snapshot"),
    *("$RECYCLE.BIN", "System Volume Information", "lost+found"),
    *("__MACOSX", "*.lrdata"),
    *("[Tt]humbs.db", "ehthumbs.db", "[Dd]esktop.ini"),
)
# Files in which editors and cameras keep what they know of a photo.
_SIDE_FILES = frozenset({".xmp", ".aae", ".pp3", ".thm"})
_VIDEOS = frozenset(
    (
        *(".mp4", ".mov", ".m4v", ".avi", ".mkv", ".webm", ".mts", ".m2ts"),
        *(".3gp", ".mpg", ".mpeg", ".wmv", ".flv", ".insv"),
    )
)
_MOST_NAMES = 5


class FolderRules:
    """Decides by patterns of names, or of paths, what is skipped in one pass, and counts it.

    Attributes:
        sidecars: Whether the files that other programs write beside a photo are read.
    """

    def __init__(self, exclude: Sequence[str] = (), *, sidecars: bool = True) -> None:
        """Start with counts of 0."""
        self.sidecars = sidecars
        self.exclude = tuple(pattern.rstrip("/") for pattern in exclude)
        self._others: Counter[str] = Counter()
        self._hidden: Counter[str] = Counter()
        self._excluded: Counter[str] = Counter()

    def leaves_out(self, uri: PurePosixPath) -> bool:
        """Whether a file or a folder is skipped; counted if so."""
        name = uri.name
        if name.startswith(".") or any(fnmatchcase(name, each) for each in _OF_PROGRAMS):
            self._hidden[name] += 1
            return True
        for pattern in self.exclude:
            if fnmatchcase(str(uri) if "/" in pattern else name, pattern):
                self._excluded[pattern] += 1
                return True
        return False

    def count_other(self, uri: PurePosixPath) -> None:
        """Count a file that is no photo, and belongs to none."""
        self._others[uri.suffix.lower() or "no suffix"] += 1

    @property
    def kinds(self) -> dict[str, int]:
        """Number of files and folders that were skipped, by kind; without kinds of none."""
        kinds: Counter[str] = Counter()
        for suffix, count in self._others.items():
            if suffix in _VIDEOS:
                kinds["videos"] += count
            elif suffix in _SIDE_FILES:
                kinds["files of editors"] += count
            else:
                kinds["files without a suffix" if suffix == "no suffix" else "other files"] += count
        kinds["hidden, or of other programs"] = self._hidden.total()
        kinds["excluded"] = self._excluded.total()
        return dict(+kinds)

    @property
    def summary(self) -> str | None:
        """What was skipped, in one line, or None if it was nothing."""
        parts: list[str] = []
        for what, counts in (
            ("not photos", self._others),
            ("hidden, or of other programs", self._hidden),
            ("excluded", self._excluded),
        ):
            if counts:
                named = [f"{count} {name!a}" for name, count in counts.most_common(_MOST_NAMES)]
                more = ", ..." if len(counts) > _MOST_NAMES else ""
                parts.append(f"{counts.total()} {what} ({', '.join(named)}{more})")
        return "; ".join(parts) or None

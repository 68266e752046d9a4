"""Where the generations come from that a service answers from: an index's files, or an engine."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from pathlib import Path
from typing import Protocol

from aladin.checkpoint import Checkpoint
from aladin.errors import EngineUnavailableError
from index.backend import ItemWriter, SearchBackend


class IndexSource(Protocol):
    """An index folder's generations; safe to use from any number of threads.

    Only `start`, `open` and the writer may take their time.
    """

    @property
    def path(self) -> Path:
        """The index's folder."""
        ...

    @property
    def looks_itself(self) -> bool:
        """Whether a thread of its own looks what is published, so that no request has to."""
        ...

    def start(self, on_look: Callable[[], None]) -> None:
        """Begin to look, unless it has begun.

        Args:
            on_look: called after each look by whoever looks by itself.

        Raises:
            EngineError: the engine refuses; one that does not answer is looked at again.
        """
        ...

    def published(self) -> Hashable | None:
        """Return what tells one publication from another, as far as is known; None: none yet."""
        ...

    def live_number(self) -> int | None:
        """Return the number of the published generation; None where it is not to be known."""
        ...

    def away(self) -> EngineUnavailableError | None:
        """Say why nothing can be searched now, of what is open, too; None: it can."""
        ...

    def open(
        self, checkpoint: Checkpoint | None = None, generation: int | None = None
    ) -> SearchBackend:
        """Open the live generation and try it.

        Args:
            checkpoint: already loaded, to be used in place of the copy in the folder.
            generation: to open in the place of the live one.

        Raises:
            IndexNotReadyError: nothing was published yet.
            IndexMismatchError: of another schema version, or built with another model.
            IndexCorruptError: it is unsound.
            EngineUnavailableError: the engine does not answer.
        """
        ...

    def writer(self, model_id: str) -> ItemWriter:
        """Return what adds and removes items; opens nothing yet.

        Args:
            model_id: of the model that encodes what is added.
        """
        ...

    def close(self) -> None:
        """Look no more, and let go of what it holds."""
        ...

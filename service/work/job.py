"""A piece of work that a request needs done, on whichever worker."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from service.work.worker import Worker

T = TypeVar("T")


class Job(ABC, Generic[T]):
    """One piece of work; it and its result may travel to another process and back."""

    @abstractmethod
    def run(self, worker: Worker) -> T:
        """Do it; blocks.

        Args:
            worker: gives the live index, and what changes it.

        Raises:
            AladinError: it cannot be done; the message is for the client.
        """

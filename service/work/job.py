"""A piece of work that a request needs done, on whichever worker."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Generic, Literal, TypeVar

if TYPE_CHECKING:
    from service.work.worker import Worker

T = TypeVar("T")

# Jobs wait and run apart by what they cost, so that slow ones do not hold up the others: look-ups,
# thumbnails and drawings, photos of full size, and changes of the index.
JobLane = Literal["read", "picture", "original", "write"]


class Job(ABC, Generic[T]):
    """One piece of work; it and its result may travel to another process and back."""

    @property
    def lane(self) -> JobLane:
        """The lane in which it waits for a worker."""
        return "read"

    @abstractmethod
    def run(self, worker: Worker) -> T:
        """Do it; blocks.

        Args:
            worker: gives the live index, and what changes it.

        Raises:
            AladinError: it cannot be done; the message is for the client.
        """

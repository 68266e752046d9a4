"""Python clients of the HTTP service; importing them loads httpx and pydantic, no more.

AladinClient, AsyncAladinClient   the same methods, without and with an event loop
Search                            one of many searches
NewPhoto, NewText                 items to add
RetryPolicy                       how patient a client is
ClientError and its kinds         see `service.client_errors`
"""

from service.answers.index import LiveIndexInfo
from service.answers.items import Added, Deleted, Item
from service.answers.search import SearchAnswer, SearchHit
from service.client.additions import NewPhoto, NewText
from service.client.async_client import AsyncAladinClient
from service.client.calls import Photo
from service.client.retries import RetryPolicy
from service.client.searches import Search
from service.client.sync_client import AladinClient
from service.client_errors import (
    ClientError,
    ConflictError,
    NoAccessError,
    NotFoundError,
    NotReadyError,
    RefusedInputError,
    ServiceError,
    ServiceUnreachableError,
    TooBusyError,
)

__all__ = [
    "Added",
    "AladinClient",
    "AsyncAladinClient",
    "ClientError",
    "ConflictError",
    "Deleted",
    "Item",
    "LiveIndexInfo",
    "NewPhoto",
    "NewText",
    "NoAccessError",
    "NotFoundError",
    "NotReadyError",
    "Photo",
    "RefusedInputError",
    "RetryPolicy",
    "Search",
    "SearchAnswer",
    "SearchHit",
    "ServiceError",
    "ServiceUnreachableError",
    "TooBusyError",
]

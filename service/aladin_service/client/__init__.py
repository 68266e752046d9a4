"""Python clients of the HTTP service; importing them loads only httpx and pydantic.

AladinClient, AsyncAladinClient   the same methods, without and with an event loop
Search, SearchTerm                one of many searches; a term of a query of several
NewPhoto, NewText                 items to add
RetryPolicy                       how patient a client is
ClientError and its kinds         see `aladin_service.client_errors`
"""

from aladin_index.facts import IndexFacts, IndexFields
from aladin_index.search.request import SearchRequest as Search
from aladin_index.search.request import SearchTerm
from aladin_index.search.results import SearchAnswer, SearchHit
from aladin_service.client.additions import NewPhoto, NewText
from aladin_service.client.calls import Photo
from aladin_service.client.clients import AladinClient, AsyncAladinClient
from aladin_service.client.connection import RetryPolicy
from aladin_service.client_errors import (
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
from aladin_service.search.answers import (
    Added,
    Deleted,
    Item,
    ItemPage,
    ListedItem,
    WordMapsAnswer,
)

__all__ = [
    "Added",
    "AladinClient",
    "AsyncAladinClient",
    "ClientError",
    "ConflictError",
    "Deleted",
    "IndexFacts",
    "IndexFields",
    "Item",
    "ItemPage",
    "ListedItem",
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
    "SearchTerm",
    "ServiceError",
    "ServiceUnreachableError",
    "TooBusyError",
    "WordMapsAnswer",
]

"""Both clients: their methods are the functions that make requests, bound to a way to send them.

`blocking` and `pages` bind a function for programs without an event loop, `awaited` and
`awaited_pages` for those with one. A method has the arguments, the docstring and the types of its
function, and returns what the answer is read as.
"""

from __future__ import annotations

import asyncio
import inspect
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator
from functools import update_wrapper
from types import TracebackType
from typing import Any, Concatenate, Generic, ParamSpec, Self, TypeVar

import httpx

from aladin_service.client import additions, items, searches
from aladin_service.client.calls import Call, Calls, OpenBody
from aladin_service.client.connection import Attempts, RetryPolicy, connection_settings
from aladin_service.client_errors import NotReadyError, ServiceUnreachableError

P = ParamSpec("P")
T = TypeVar("T")
Result = TypeVar("Result")
Transport = TypeVar("Transport", httpx.BaseTransport, httpx.AsyncBaseTransport)


def blocking(make: Callable[P, Call[T]]) -> Callable[Concatenate[AladinClient, P], T]:
    """Bind a request to the client without an event loop."""

    def method(client: AladinClient, *args: P.args, **kwargs: P.kwargs) -> T:
        return client.send(make(*args, **kwargs))

    _describe(method, make)
    return method


def pages(
    make: Callable[P, Calls[Result]], entries: Callable[[Result], Iterable[T]]
) -> Callable[Concatenate[AladinClient, P], Iterator[T]]:
    """Bind requests that follow one another; `entries` are what each answer is made of."""

    def method(client: AladinClient, *args: P.args, **kwargs: P.kwargs) -> Iterator[T]:
        calls = make(*args, **kwargs)
        call = next(calls, None)
        while call is not None:
            answer = client.send(call)
            yield from entries(answer)
            call = _next(calls, answer)

    _describe(method, make)
    return method


def awaited(
    make: Callable[P, Call[T]],
) -> Callable[Concatenate[AsyncAladinClient, P], Coroutine[Any, Any, T]]:
    """Bind a request to the client with an event loop."""

    async def method(client: AsyncAladinClient, *args: P.args, **kwargs: P.kwargs) -> T:
        return await client.send(make(*args, **kwargs))

    _describe(method, make)
    return method


def awaited_pages(
    make: Callable[P, Calls[Result]], entries: Callable[[Result], Iterable[T]]
) -> Callable[Concatenate[AsyncAladinClient, P], AsyncIterator[T]]:
    """Bind requests that follow one another; see `pages`."""

    async def method(
        client: AsyncAladinClient, *args: P.args, **kwargs: P.kwargs
    ) -> AsyncIterator[T]:
        calls = make(*args, **kwargs)
        call = next(calls, None)
        while call is not None:
            answer = await client.send(call)
            for entry in entries(answer):
                yield entry
            call = _next(calls, answer)

    _describe(method, make)
    return method


def _next(calls: Calls[Result], answer: Result) -> Call[Result] | None:
    try:
        return calls.send(answer)
    except StopIteration:
        return None


def _describe(method: Callable[..., Any], make: Callable[..., Any]) -> None:
    """Give a method the name, docstring and signature of its function, behind `self`."""
    update_wrapper(method, make)
    made = inspect.signature(make)
    client = inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    signature = made.replace(
        parameters=[client, *made.parameters.values()], return_annotation=made.empty
    )
    method.__dict__.update(__signature__=signature)


class _Client(ABC, Generic[Transport]):
    """A connection to a service, and what both ways to use it have in common."""

    def __init__(
        self,
        url: str,
        *,
        api_key: str | None = None,
        timeout_s: float = 30.0,
        retries: RetryPolicy | None = None,
        transport: Transport | None = None,
    ) -> None:
        """Connect to nothing yet.

        Args:
            url: URL of the service, such as ``http://127.0.0.1:8000``.
            api_key: API key, or None for the one in the environment variable ALADIN_API_KEY, if
                any.
            timeout_s: Timeout for connecting and for each wait for the network.
            retries: Retry policy, or None for the defaults of `RetryPolicy`.
            transport: Transport that sends the requests, or None for the network.

        Raises:
            ConfigError: If the URL is not a valid HTTP URL.
        """
        self._retries = retries or RetryPolicy()
        self._timeout_s = timeout_s
        self._open(connection_settings(url, api_key, timeout_s) | {"transport": transport})

    @abstractmethod
    def _open(self, settings: dict[str, Any]) -> None:
        """Make the client of httpx."""

    def _attempts(self, call: Call[Any]) -> Attempts:
        return Attempts(call.policy or self._retries, call.again)

    def _request(self, call: Call[Any], body: OpenBody, left_s: float) -> dict[str, Any]:
        """Return one attempt as arguments of httpx."""
        return {
            "method": call.method,
            "url": call.path,
            "params": call.params,
            "headers": body.headers,
            "json": body.json,
            "data": body.data,
            "files": body.files,
            "content": body.content,
            "timeout": min(self._timeout_s, left_s),
        }


class AladinClient(_Client[httpx.BaseTransport]):
    """Client of a service over HTTP; may be used from any number of threads.

    >>> from aladin_service.client import AladinClient
    >>> with AladinClient(url) as client:
    ...     client.wait_until_ready()
    ...     answer = client.search_images("a red dog", k=2)
    ...     png = client.explain_png(answer.hits[0].id, "a red dog")
    >>> [hit.rank for hit in answer.hits], png[1:4]
    ([1, 2], b'PNG')
    """

    search_images = blocking(searches.search_images)
    search_texts = blocking(searches.search_texts)
    search = blocking(searches.search)
    search_batch = blocking(searches.search_batch)
    search_many = pages(searches.search_many, iter)
    item = blocking(items.item)
    list_items = blocking(items.list_items)
    every_item = pages(items.every_item, lambda page: page.items)
    photo = blocking(items.photo)
    explain = blocking(items.explain)
    explain_png = blocking(items.explain_png)
    add_photo = blocking(additions.add_photo)
    add_photos = blocking(additions.add_photos)
    add_text = blocking(additions.add_text)
    add_texts = blocking(additions.add_texts)
    add_many = pages(additions.add_many, lambda added: [added])
    delete = blocking(items.delete)
    index = blocking(items.index)
    index_fields = blocking(items.index_fields)
    wait_until_ready = blocking(items.wait_until_ready)

    def health(self) -> bool:
        """Return whether the service's process answers."""
        return self._probe("healthz")

    def ready(self) -> bool:
        """Return whether the service can answer searches."""
        return self._probe("readyz")

    def send(self, call: Call[T]) -> T:
        """Send a request, again if need be, and read its answer."""
        attempts = self._attempts(call)
        while True:
            try:
                with call.body() as body:
                    response = self._http.request(**self._request(call, body, attempts.left_s))
            except httpx.RequestError as error:
                wait_s = attempts.wait_s_after_error(error)
            else:
                wait_s = attempts.wait_s_after_answer(response)
                if wait_s is None:
                    return call.read(response)
            time.sleep(wait_s)

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def __enter__(self) -> Self:
        """Return the client."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close the connections."""
        self.close()

    def _open(self, settings: dict[str, Any]) -> None:
        self._http = httpx.Client(**settings)

    def _probe(self, path: str) -> bool:
        try:
            self.send(items.probe(path))
        except (NotReadyError, ServiceUnreachableError):
            return False
        return True


class AsyncAladinClient(_Client[httpx.AsyncBaseTransport]):
    """Client of a service over HTTP, with the methods of `AladinClient` as coroutines.

    >>> import asyncio
    >>> from aladin_service.client import AsyncAladinClient
    >>> async def ranks(words: str) -> list[int]:
    ...     async with AsyncAladinClient(url) as client:
    ...         answer = await client.search_images(words, k=2)
    ...     return [hit.rank for hit in answer.hits]
    >>> asyncio.run(ranks("a red dog"))
    [1, 2]
    """

    search_images = awaited(searches.search_images)
    search_texts = awaited(searches.search_texts)
    search = awaited(searches.search)
    search_batch = awaited(searches.search_batch)
    search_many = awaited_pages(searches.search_many, iter)
    item = awaited(items.item)
    list_items = awaited(items.list_items)
    every_item = awaited_pages(items.every_item, lambda page: page.items)
    photo = awaited(items.photo)
    explain = awaited(items.explain)
    explain_png = awaited(items.explain_png)
    add_photo = awaited(additions.add_photo)
    add_photos = awaited(additions.add_photos)
    add_text = awaited(additions.add_text)
    add_texts = awaited(additions.add_texts)
    add_many = awaited_pages(additions.add_many, lambda added: [added])
    delete = awaited(items.delete)
    index = awaited(items.index)
    index_fields = awaited(items.index_fields)
    wait_until_ready = awaited(items.wait_until_ready)

    async def health(self) -> bool:
        """Return whether the service's process answers."""
        return await self._probe("healthz")

    async def ready(self) -> bool:
        """Return whether the service can answer searches."""
        return await self._probe("readyz")

    async def send(self, call: Call[T]) -> T:
        """Send a request, again if need be, and read its answer."""
        attempts = self._attempts(call)
        while True:
            try:
                with call.body() as body:
                    request = self._request(call, body, attempts.left_s)
                    if body.content is not None:
                        request["content"] = _to_be_awaited(body.content)
                    response = await self._http.request(**request)
            except httpx.RequestError as error:
                wait_s = attempts.wait_s_after_error(error)
            else:
                wait_s = attempts.wait_s_after_answer(response)
                if wait_s is None:
                    return call.read(response)
            await asyncio.sleep(wait_s)

    async def close(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    async def __aenter__(self) -> Self:
        """Return the client."""
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close the connections."""
        await self.close()

    def _open(self, settings: dict[str, Any]) -> None:
        self._http = httpx.AsyncClient(**settings)

    async def _probe(self, path: str) -> bool:
        try:
            await self.send(items.probe(path))
        except (NotReadyError, ServiceUnreachableError):
            return False
        return True


async def _to_be_awaited(chunks: Iterator[bytes]) -> AsyncIterator[bytes]:
    for chunk in chunks:
        yield chunk

"""The connection of the client for programs without an event loop, and its attempts at a request.

Generated from the asynchronous module by ``python -m tests.service.client.sync_source``;
change that one instead.
"""

from __future__ import annotations

import time
from types import TracebackType
from typing import Self, TypeVar

import httpx

from aladin_service.client.calls import Call, probe_call
from aladin_service.client.connection import (
    Attempts,
    RetryPolicy,
    connection_settings,
    patience,
)
from aladin_service.client_errors import NotReadyError, ServiceUnreachableError

T = TypeVar("T")


class SyncSender:
    """A connection to a service: sends requests, again if need be, and waits until it is ready."""

    def __init__(
        self,
        url: str,
        *,
        api_key: str | None = None,
        timeout_s: float = 30.0,
        retries: RetryPolicy | None = None,
        transport: httpx.BaseTransport | None = None,
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
        self._http = httpx.Client(
            **connection_settings(url, api_key, timeout_s), transport=transport
        )

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

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def health(self) -> bool:
        """Return whether the service's process answers."""
        return self._probe("healthz")

    def ready(self) -> bool:
        """Return whether the service can answer searches."""
        return self._probe("readyz")

    def wait_until_ready(self, timeout_s: float = 60.0) -> None:
        """Wait until the service can answer searches.

        Raises:
            NotReadyError: If the service answers, but is not ready in time.
            ServiceUnreachableError: If the service does not answer in time.
        """
        self._send(probe_call("readyz", "always"), patience(timeout_s))

    def _probe(self, path: str) -> bool:
        try:
            self._send(probe_call(path))
        except (NotReadyError, ServiceUnreachableError):
            return False
        return True

    def _send(self, call: Call[T], policy: RetryPolicy | None = None) -> T:
        attempts = Attempts(policy or self._retries, call.again)
        while True:
            try:
                response = self._attempt(call, attempts.left_s)
            except httpx.RequestError as error:
                wait_s = attempts.wait_s_after_error(error)
            else:
                wait_s = attempts.wait_s_after_answer(response)
                if wait_s is None:
                    return call.read(response)
            time.sleep(wait_s)

    def _attempt(self, call: Call[T], left_s: float) -> httpx.Response:
        with call.body() as body:
            return self._http.request(
                call.method,
                call.path,
                params=call.params,
                headers=body.headers,
                json=body.json,
                data=body.data,
                files=body.files,
                content=body.content,
                timeout=min(self._timeout_s, left_s),
            )

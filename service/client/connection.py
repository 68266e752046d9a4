"""What both clients have in common: where the service is, the key, and how an attempt ends."""

from __future__ import annotations

import os
import sys
from importlib.metadata import version
from typing import Any

import httpx

from aladin.errors import ConfigError
from service.client.error_answers import read_error
from service.client.retries import Attempts, RetryPolicy, parse_retry_after
from service.client_errors import ServiceError, ServiceUnreachableError

API_KEY_VARIABLE = "ALADIN_API_KEY"

# The service's own limit of requests that add is 100 items and 24 MiB; a share of it keeps each
# request short.
ADD_ITEMS = 32
ADD_BYTES = 8 * 2**20
BATCH_QUERIES = 32


def connection_settings(url: str, api_key: str | None, timeout_s: float) -> dict[str, Any]:
    """Return what the httpx client of a service is made with.

    Args:
        url: of the service, such as ``http://127.0.0.1:8000``.
        api_key: None: the one in the environment, if any.
        timeout_s: for connecting and for each wait for the network.

    Raises:
        ConfigError: this is no URL of the web.
    """
    try:
        parsed = httpx.URL(url)
    except httpx.InvalidURL as error:
        raise ConfigError(f"{url!r} is no URL: {error}") from None
    if parsed.scheme not in ("http", "https") or not parsed.host:
        raise ConfigError(f"expected a URL such as http://127.0.0.1:8000, got {url!r}")
    headers = {"User-Agent": f"aladin-search/{version('aladin-search')}"}
    key = os.environ.get(API_KEY_VARIABLE) if api_key is None else api_key
    if key:
        headers["Authorization"] = f"Bearer {key}"
    return {"base_url": parsed, "headers": headers, "timeout": httpx.Timeout(timeout_s)}


def patience(timeout_s: float) -> RetryPolicy:
    """Return the policy of whoever waits for a service to come up."""
    return RetryPolicy(attempts=sys.maxsize, total_s=timeout_s, first_wait_s=0.05, max_wait_s=1.0)


def after_error(attempts: Attempts, error: httpx.RequestError) -> float:
    """Return how long to wait before the next attempt.

    Raises:
        ServiceUnreachableError: there is none.
    """
    wait_s = attempts.after_error(error)
    if wait_s is None:
        raise unreachable(error) from error
    return wait_s


def after_answer(attempts: Attempts, response: httpx.Response) -> float | None:
    """Return how long to wait before the next attempt; None: the answer is a success.

    Raises:
        ServiceError: the answer is an error, and there is no next attempt.
    """
    if response.is_success:
        return None
    error = error_in(response)
    wait_s = attempts.after_answer(error.status, error.code, error.retry_after_s)
    if wait_s is None:
        raise error
    return wait_s


def error_in(response: httpx.Response) -> ServiceError:
    """Return the error that an answer tells of."""
    retry_after_s = parse_retry_after(response.headers.get("retry-after"))
    error = read_error(response.status_code, response.content, retry_after_s)
    if error.code == "unauthorized" and "authorization" not in response.request.headers:
        # The service cannot know where its caller takes a key from.
        error.args = (f"{error.message}: set {API_KEY_VARIABLE} to a key of the service",)
    return error


def unreachable(error: httpx.RequestError) -> ServiceUnreachableError:
    """Return the error of an attempt without an answer."""
    reason = str(error) or type(error).__name__
    try:
        where = str(error.request.url)
    except RuntimeError:  # it never got as far as a request
        where = "the service"
    return ServiceUnreachableError(f"no answer from {where}: {reason}")

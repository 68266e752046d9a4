"""LangChain's own tests of retrievers."""

from __future__ import annotations

import gc
import warnings
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

# The tests leave their retrievers to the garbage collector, with the connections of a closed event
# loop.
pytestmark = [
    pytest.mark.clients,
    pytest.mark.anyio,
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]


@pytest.fixture(scope="module", autouse=True)
def collected() -> Iterator[None]:
    """Have the connections collected where nobody minds."""
    yield
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


if TYPE_CHECKING:
    from langchain_core.retrievers import BaseRetriever
    from langchain_tests.integration_tests import RetrieversIntegrationTests
else:
    try:
        from langchain_tests.integration_tests import RetrieversIntegrationTests
    except ImportError:  # collected, and deselected, without the extra `clients`
        RetrieversIntegrationTests = object


class TestAladinRetriever(RetrieversIntegrationTests):
    """The standard tests, of a retriever over a service."""

    @pytest.fixture(autouse=True)
    def served(self, key_and_url: tuple[str, str]) -> None:
        """Set the service that is searched."""
        key, url = key_and_url
        self._parameters = {"url": url, "api_key": key}

    @property
    def retriever_constructor(self) -> type[BaseRetriever]:
        """The class that is tested."""
        from aladin_search.integrations.langchain import AladinRetriever

        return AladinRetriever

    @property
    def retriever_constructor_params(self) -> dict[str, Any]:
        """The arguments that it needs."""
        return self._parameters

    @property
    def retriever_query_example(self) -> str:
        """A query."""
        return "a red dog runs"

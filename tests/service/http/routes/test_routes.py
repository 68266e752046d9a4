"""What holds for all routes."""

from __future__ import annotations

import inspect
import pkgutil
from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Any

from fastapi.dependencies.models import Dependant

from aladin_service.http import routes
from aladin_service.http.router import ServiceRoute, ServiceRouter


def calls(dependant: Dependant) -> Iterator[Callable[..., Any]]:
    """What the framework calls for a request: a route and all that it depends on."""
    assert dependant.call is not None
    yield dependant.call
    for each in dependant.dependencies:
        yield from calls(each)


def test_no_request_goes_over_a_thread_of_the_framework() -> None:
    names = [module.name for module in pkgutil.iter_modules(routes.__path__)]
    assert len(names) > 5
    for name in names:
        router: ServiceRouter = import_module(f"{routes.__name__}.{name}").router
        for route in router.routes:
            assert isinstance(route, ServiceRoute)
            for call in calls(route.dependant):
                assert inspect.iscoroutinefunction(call), (route.path, call)

"""Requests made from the service's own description of its routes, sound ones and unsound ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import requests
import schemathesis
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis.errors import Unsatisfiable
from schemathesis import GenerationMode, checks
from schemathesis.core.failures import Failure, FailureGroup

from benchmarks.hostile_answers import PATIENCE_S, Answers

# Sound requests find what is behind the checks, unsound ones the checks.
_MODES = (GenerationMode.POSITIVE, GenerationMode.NEGATIVE)
# Of hypothesis, on how fast and how large cases are made.
_ALL_CHECKS = cast(list[HealthCheck], list(HealthCheck))

_DESCRIBED = [
    checks.status_code_conformance,
    checks.content_type_conformance,
    checks.response_schema_conformance,
]


def send_api_cases(url: str, count: int, answers: Answers, *, seed_: int = 0) -> int:
    """Send requests to every route.

    Args:
        url: of the service.
        count: of requests, about; spread evenly.
        answers: where what came back is counted. An answer that the description does not allow
            is a fault.
        seed_: another one gives other requests.

    Returns:
        The number of requests that were sent.
    """
    schema = schemathesis.openapi.from_url(f"{url}/openapi.json")
    found: list[Any] = list(schema.get_all_operations())
    parts = [(operation.ok(), mode) for operation in found for mode in _MODES]
    sent = 0
    with requests.Session() as session:
        # A route that takes little is soon through; the others get what is left of its share.
        while sent < count and parts:
            round_ = -(-(count - sent) // len(parts))
            for operation, mode in tuple(parts):
                strategy = operation.as_strategy(generation_mode=mode)
                try:
                    done = _send(strategy, round_, session, url, answers, seed_ + sent)
                except Unsatisfiable:  # whoever takes nothing cannot be asked wrongly
                    done = 0
                sent += done
                if done < round_:
                    parts.remove((operation, mode))
    return sent


def _send(
    strategy: Any,
    count: int,
    session: requests.Session,
    url: str,
    answers: Answers,
    seed_: int,
) -> int:
    sent = 0

    @seed(seed_)
    @settings(
        max_examples=count,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=_ALL_CHECKS,
    )
    @given(strategy)
    def send(case: Any) -> None:
        nonlocal sent
        sent += 1
        asked = f"{case.method} {case.formatted_path} {case.query} {str(case.body)[:200]}"
        try:
            answer = case.call(base_url=url, session=session, timeout=PATIENCE_S)
        except requests.Timeout:
            answers.fault("hang", asked, f"nothing in {PATIENCE_S:g} s")
            return
        except (requests.RequestException, ValueError) as error:
            # What HTTP cannot say, such as a header of two lines, was not sent.
            answers.answered("api", 0, asked, repr(error).encode())
            return
        answers.answered("api", answer.status_code, asked, answer.content)
        try:
            case.validate_response(answer, checks=_DESCRIBED)
        except (Failure, FailureGroup) as failure:
            answers.fault("undocumented", asked, _first_lines(failure))

    run: Callable[[], None] = send
    run()
    return sent


def _first_lines(failure: BaseException) -> str:
    if isinstance(failure, FailureGroup):
        failure = failure.exceptions[0]
    return " ".join(str(failure).split())[:300]

"""Attempts to have the service read a file that is not the index's."""

from __future__ import annotations

import http.client
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

from benchmarks.hostile_answers import PATIENCE_S, Answers

_ROUTES = ("/v1/images/{}", "/v1/items/images/{}", "/v1/items/texts/{}", "/v1/items/{}/a", "/{}")
_ASSETS = ("/static/{}", "/page/{}", "/docs/{}", "/metadata?id={}")


def send_paths(host: str, port: int, canary: Path, index: Path, answers: Answers) -> int:
    """Ask for a file outside the index, and for one in it that is no photo, in all spellings.

    Args:
        host: of the service.
        port: of the service.
        canary: a file that exists, whose content is in no answer of a sound service.
        index: the folder that is served; its manifests name the same things on every route.
        answers: where what came back is counted; the file's content in it is a fault.

    Returns:
        The number of requests.
    """
    secret = canary.read_bytes()
    sent = 0
    for path in _paths(canary, index):
        connection = http.client.HTTPConnection(host, port, timeout=PATIENCE_S)
        try:
            # As it is: clients that are kinder take ".." out of a path.
            connection.putrequest("GET", path, skip_accept_encoding=True)
            connection.endheaders()
            answer = connection.getresponse()
            body = answer.read()
        except TimeoutError:
            answers.fault("hang", path, f"nothing in {PATIENCE_S:g} s")
        except (http.client.HTTPException, ConnectionError, ValueError) as error:
            answers.answered("paths", 0, path, repr(error).encode())
        else:
            answers.answered("paths", answer.status, path, body)
            if secret in body or b'"generation_dir"' in body:
                answers.fault("leak", path, f"{answer.status} {body[:100]!r}")
        finally:
            connection.close()
        sent += 1
    return sent


def _paths(canary: Path, index: Path) -> Iterator[str]:
    absolute = str(canary)
    inside = f"{index.name}/CURRENT"
    names = [absolute, absolute[1:], f"file://{absolute}", canary.name, inside, "CURRENT"]
    names += [
        f"{'../' * ups}{target}" for ups in range(1, 9) for target in (absolute[1:], canary.name)
    ]
    names += [f"photos/{'../' * ups}{canary.name}" for ups in range(1, 5)]
    names += [f"a/../..{absolute}", f"....//....//{canary.name}", f"..\\..\\{canary.name}"]
    names += [f"{absolute}\0.png", f"{absolute}%00.png", f"~/{canary.name}", f"{absolute}/.", "/"]
    for name in names:
        once = quote(name, safe="")
        spellings = (
            quote(name, safe="/:~"),
            once,
            quote(once, safe=""),
            once.replace("%2F", "/").replace(".", "%2e"),
            once.replace(".", "%c0%ae").replace("%2F", "%c0%af"),
        )
        for spelling in dict.fromkeys(spellings):
            for route in (*_ROUTES, *_ASSETS):
                yield route.format(spelling)
                if route.startswith("/v1/images"):
                    yield route.format(spelling) + "?size=64"

"""Writes the synchronous client from the asynchronous one.

Run it by ``python -m tests.service.client.sync_source``.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import aladin_service.client.async_client

_SOURCE = Path(aladin_service.client.async_client.__file__)
TARGET = _SOURCE.with_name("sync_client.py")

# Passages that differ by more than single words.
_PASSAGES = (
    (
        '"""The client for programs with an event loop."""\n',
        '"""The client for programs without an event loop.\n\n'
        "Generated from `async_client` by ``python -m tests.service.client.sync_source``; change"
        '\nthat file instead.\n"""\n',
    ),
    (
        re.compile(r'    """Client of a service over HTTP, with the.*?\n    """\n', re.DOTALL),
        '    """Client of a service over HTTP; may be used from any number of threads.\n\n'
        "    >>> from aladin_service.client import AladinClient\n"
        "    >>> with AladinClient(url) as client:\n"
        "    ...     client.wait_until_ready()\n"
        '    ...     answer = client.search_images("a red dog", k=2)\n'
        '    ...     png = client.explain_png(answer.hits[0].id, "a red dog")\n'
        "    >>> [hit.rank for hit in answer.hits], png[1:4]\n"
        "    ([1, 2], b'PNG')\n"
        '    """\n',
    ),
    (
        re.compile(r"            for outcome in (.*):\n                yield outcome\n"),
        r"            yield from \1" + "\n",
    ),
    (
        "content=None if body.content is None else _to_be_awaited(body.content)",
        "content=body.content",
    ),
    (re.compile(r"\n\nasync def _to_be_awaited.*", re.DOTALL), ""),
)
_WORDS = (
    ("AsyncAladinClient", "AladinClient"),
    ("__aenter__", "__enter__"),
    ("__aexit__", "__exit__"),
    ("AsyncClient", "Client"),
    ("AsyncBaseTransport", "BaseTransport"),
    ("AsyncIterator", "Iterator"),
    ("aclose", "close"),
    ("asyncio", "time"),
    ("async ", ""),
    ("await ", ""),
)


def sync_source() -> str:
    """Return the source of the synchronous client, formatted."""
    text = re.sub("async for", "for", _SOURCE.read_text(encoding="utf-8"))
    for old, new in _PASSAGES:
        text = re.sub(re.escape(old) if isinstance(old, str) else old, new, text)
    for old, new in _WORDS:
        text = re.sub(rf"\b{old}", new, text)
    for command in (("check", "--fix", "--quiet", "--exit-zero"), ("format",)):
        call = [sys.executable, "-m", "ruff", *command, "--stdin-filename", str(TARGET), "-"]
        text = subprocess.run(call, input=text, capture_output=True, text=True, check=True).stdout
    return text


if __name__ == "__main__":
    TARGET.write_text(sync_source(), encoding="utf-8")

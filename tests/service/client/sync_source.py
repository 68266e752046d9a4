"""Writes the modules of the synchronous client from those of the asynchronous one.

Run it by ``python -m tests.service.client.sync_source``.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import aladin_service.client

_FOLDER = Path(aladin_service.client.__file__).parent
# The asynchronous module by the synchronous one.
MODULES = {
    _FOLDER / f"sync_{name}.py": _FOLDER / f"async_{name}.py" for name in ("client", "sender")
}

# Passages that differ by more than single words.
_PASSAGES = (
    (
        re.compile(r'^"""(.*) with an event loop(.*)\."""\n'),
        r'"""\1 without an event loop\2.' + "\n\n"
        "Generated from the asynchronous module by ``python -m tests.service.client.sync_source``;"
        '\nchange that one instead.\n"""\n',
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
        re.compile(r"^( +)for (\w+) in (.*):\n +yield \2\n", re.MULTILINE),
        r"\1yield from \3" + "\n",
    ),
    (
        "content=None if body.content is None else _to_be_awaited(body.content)",
        "content=body.content",
    ),
    (re.compile(r"\n\nasync def _to_be_awaited.*", re.DOTALL), ""),
)
_WORDS = (
    ("async_sender", "sync_sender"),
    ("AsyncSender", "SyncSender"),
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


def sync_source(source: Path) -> str:
    """Return the synchronous form of an asynchronous module, formatted."""
    text = re.sub("async for", "for", source.read_text(encoding="utf-8"))
    for old, new in _PASSAGES:
        text = re.sub(re.escape(old) if isinstance(old, str) else old, new, text)
    for old, new in _WORDS:
        text = re.sub(rf"\b{old}", new, text)
    for command in (("check", "--fix", "--quiet", "--exit-zero"), ("format",)):
        call = [sys.executable, "-m", "ruff", *command, "--stdin-filename", str(source), "-"]
        text = subprocess.run(call, input=text, capture_output=True, text=True, check=True).stdout
    return text


if __name__ == "__main__":
    for target, source in MODULES.items():
        target.write_text(sync_source(source), encoding="utf-8")

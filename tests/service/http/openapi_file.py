"""Writes docs/openapi.json, the OpenAPI document of a service with the default settings.

Run it by ``python -m tests.service.http.openapi_file``.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, cast

from aladin_service.http.app import create_app
from aladin_service.observe.metrics import Metrics
from aladin_service.settings import ServiceSettings

FILE = Path(__file__).parents[3] / "docs" / "openapi.json"
COMMAND = "python -m tests.service.http.openapi_file"


def openapi_text() -> str:
    """Return the document as the file has it, one entry in a line."""
    # The document is written without a worker, and without an index.
    app = create_app(cast(Any, None), ServiceSettings(), Metrics())
    return json.dumps(app.openapi(), indent=1, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    FILE.write_text(openapi_text(), encoding="utf-8")

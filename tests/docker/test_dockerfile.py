"""The Dockerfile: what it is made of and what it leaves out, without an engine."""

from __future__ import annotations

import http.server
import json
import re
import subprocess
import sys
import threading
import tomllib
from fnmatch import fnmatch

import pytest

from aladin_service.http.access.control import rows_of
from tests.docker.compose_files import ROOT

Instruction = tuple[str, str]
PINNED = re.compile(r"^[a-z0-9./_-]+:\d+\.\d+\.\d+[a-z0-9.-]*@sha256:[0-9a-f]{64}$")


@pytest.fixture(scope="module")
def instructions() -> list[Instruction]:
    """The instructions, each on one line, without comments."""
    lines = (ROOT / "docker" / "Dockerfile").read_text(encoding="utf-8").splitlines()
    text = "\n".join(line for line in lines if not line.startswith("#")).replace("\\\n", " ")
    parts = [line.split(None, 1) for line in text.splitlines() if line.strip()]
    return [(name, " ".join(rest.split())) for name, rest in parts]


@pytest.fixture(scope="module")
def final(instructions: list[Instruction]) -> list[Instruction]:
    """The instructions of the last stage."""
    start = max(place for place, (name, _) in enumerate(instructions) if name == "FROM")
    return instructions[start:]


def values(instructions: list[Instruction], name: str) -> list[str]:
    """All that stands behind an instruction's name."""
    return [rest for each, rest in instructions if each == name]


def test_the_build_is_of_pinned_images_and_files_of_known_hashes(
    instructions: list[Instruction],
) -> None:
    assert {rest.split()[0] for rest in values(instructions, "FROM")} == {"${PYTHON_IMAGE}"}
    name, image = instructions[0][1].split("=", 1)
    assert (instructions[0][0], name) == ("ARG", "PYTHON_IMAGE")
    assert PINNED.match(image), image
    assert values(instructions, "ADD") == []
    runs = values(instructions, "RUN")
    assert not re.search(r"\b(curl|wget|git)\b|https?://|<<", " ".join(runs))
    for call in re.findall(r"pip (?:--python \S+ )?(?:install|wheel)[^&]*", " & ".join(runs)):
        assert "--no-cache-dir" in call
        assert "--no-deps" in call
        # What is built from these sources is on no index.
        of_sources = "/wheels/*.whl" in call or call.rstrip().endswith("/wheels .")
        assert "--require-hashes --requirement" in call or of_sources, call
    (listing,) = [run for run in runs if "cyclonedx-py" in run]
    assert "--output-file /opt/aladin/sbom.cdx.json /opt/aladin/bin/python" in listing


def test_the_image_is_small_runs_as_a_numbered_user_and_stops_well(
    final: list[Instruction],
) -> None:
    # The compiler and the sources stay in the first stage.
    copied = ["--from=packages /opt/aladin /opt/aladin", "--from=wheel /wheels /wheels"]
    assert values(final, "COPY") == copied
    assert not any("apt-get" in run for run in values(final, "RUN"))
    assert values(final, "USER") == ["10001:10001"]
    after = final[[name for name, _ in final].index("USER") :]
    assert not {"RUN", "COPY"} & {name for name, _ in after}
    (created,) = [run for run in values(final, "RUN") if "useradd" in run]
    assert "--uid 10001" in created and "--gid 10001" in created
    # Caches are kept where a read-only image is written.
    (environment,) = values(final, "ENV")
    kept = dict(word.split("=", 1) for word in environment.split())
    for name in ("HOME", "HF_HOME", "MPLCONFIGDIR", "TORCHINDUCTOR_CACHE_DIR"):
        assert kept[name].startswith("/tmp")
    assert kept["HF_HUB_OFFLINE"] == "1"
    assert values(final, "STOPSIGNAL") == ["SIGTERM"]
    assert json.loads(values(final, "ENTRYPOINT")[0]) == ["aladin"]
    assert values(final, "EXPOSE") == ["8000"]
    command = json.loads(values(final, "CMD")[0])
    assert command[command.index("--port") + 1] == "8000"
    assert "--wait" in command  # a container may start before there is an index


def test_what_is_copied_is_there_and_alone_is_sent_to_the_builder(
    instructions: list[Instruction],
) -> None:
    lines = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    rules = [line for line in lines if line and not line.startswith("#")]
    copied = [copy.split() for copy in values(instructions, "COPY") if "--from" not in copy]
    sources = {source for *places, _ in copied for source in places}
    assert all((ROOT / source).exists() for source in sources)
    assert rules[0] == "*"
    assert {rule[1:] for rule in rules if rule.startswith("!")} == sources
    kept_out = [rule for rule in rules[1:] if not rule.startswith("!")]
    for name in ("index/aladin_index/kernel/_maxsim.so", "service/__pycache__"):
        assert any(fnmatch(name, rule) for rule in kept_out)
    # The wheel has its packages, its hook and what it names.
    tables = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    wheel = tables["tool"]["hatch"]["build"]["targets"]["wheel"]
    needed = {
        *(folder.split("/")[0] for folder in wheel["only-include"]),
        wheel["hooks"]["custom"]["path"],
        "README.md",  # which the hook reads
        *(file.split("/")[0] for file in tables["project"]["license-files"]),
    }
    assert needed <= {word for places in copied for word in places}


class Readiness(http.server.BaseHTTPRequestHandler):
    """Answers with the status that its server is to answer with."""

    asked: list[str]
    status = 200

    def do_GET(self) -> None:
        self.asked.append(self.path)
        self.send_response(self.status)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, format: str, *arguments: object) -> None:
        pass


@pytest.mark.parametrize(("status", "code"), [(200, 0), (503, 1)])
def test_the_health_check_is_well_when_the_service_is_ready(
    final: list[Instruction], status: int, code: int
) -> None:
    (line,) = values(final, "HEALTHCHECK")
    python, *arguments = json.loads(line.split(" CMD ", 1)[1])
    assert python == "python"
    handler = type("Handler", (Readiness,), {"asked": [], "status": status})
    with http.server.HTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        assert "8000" in arguments[-1]
        arguments[-1] = arguments[-1].replace("8000", str(server.server_port))
        assert subprocess.run([sys.executable, *arguments], timeout=30).returncode == code
        server.shutdown()
    assert handler.asked == ["/readyz"]
    assert rows_of("/readyz")["GET"].scope == "open"  # it needs no key

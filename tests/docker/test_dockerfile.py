"""The Dockerfile: what it is made of and what it leaves out, without an engine."""

from __future__ import annotations

import http.server
import json
import re
import subprocess
import sys
import threading
import tomllib
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path

import pytest

from aladin_service.http.access.control import rows_of

Instruction = tuple[str, str]
PINNED = re.compile(r"^[a-z0-9./_-]+:\d+\.\d+\.\d+[a-z0-9.-]*@sha256:[0-9a-f]{64}$")


@pytest.fixture(scope="module")
def instructions(root: Path) -> list[Instruction]:
    """The instructions, each on one line, without comments."""
    lines = (root / "docker" / "Dockerfile").read_text(encoding="utf-8").splitlines()
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


def test_every_stage_begins_with_one_base_image_pinned_by_version_and_digest(
    instructions: list[Instruction],
) -> None:
    bases = [rest.split()[0] for rest in values(instructions, "FROM")]
    assert set(bases) == {"${PYTHON_IMAGE}"}
    name, image = instructions[0][1].split("=", 1)
    assert (instructions[0][0], name) == ("ARG", "PYTHON_IMAGE")
    assert PINNED.match(image), image


def test_nothing_comes_from_an_address_or_with_here_documents(
    instructions: list[Instruction],
) -> None:
    assert values(instructions, "ADD") == []
    runs = " ".join(values(instructions, "RUN"))
    assert not re.search(r"\b(curl|wget|git)\b|https?://|<<", runs)


def test_the_image_runs_as_a_numbered_user_who_is_not_root(final: list[Instruction]) -> None:
    assert values(final, "USER") == ["10001:10001"]
    after = final[[name for name, _ in final].index("USER") :]
    assert not {"RUN", "COPY"} & {name for name, _ in after}
    (created,) = [run for run in values(final, "RUN") if "useradd" in run]
    assert "--uid 10001" in created
    assert "--gid 10001" in created


def test_the_compiler_and_the_sources_stay_in_the_first_stage(final: list[Instruction]) -> None:
    copied = values(final, "COPY")
    assert copied == ["--from=packages /opt/aladin /opt/aladin", "--from=wheel /wheels /wheels"]
    assert not any("apt-get" in run for run in values(final, "RUN"))


def test_pip_keeps_no_cache_and_takes_files_of_known_hashes_alone(
    instructions: list[Instruction],
) -> None:
    for run in values(instructions, "RUN"):
        for call in re.findall(r"pip (?:--python \S+ )?(?:install|wheel)[^&]*", run):
            assert "--no-cache-dir" in call
            assert "--no-deps" in call
            # What is built from these sources is on no index.
            of_sources = "/wheels/*.whl" in call or call.endswith("/wheels . ")
            assert "--require-hashes --requirement" in call or of_sources, call


def test_the_image_has_a_list_of_its_packages(instructions: list[Instruction]) -> None:
    (run,) = [run for run in values(instructions, "RUN") if "cyclonedx-py" in run]
    assert "--output-file /opt/aladin/sbom.cdx.json /opt/aladin/bin/python" in run


def test_whatever_is_copied_is_there_and_is_sent_to_the_builder(
    instructions: list[Instruction], root: Path
) -> None:
    lines = (root / ".dockerignore").read_text(encoding="utf-8").splitlines()
    rules = [line for line in lines if line and not line.startswith("#")]
    copied = [copy.split() for copy in values(instructions, "COPY") if "--from" not in copy]
    sources = {source for *places, _ in copied for source in places}
    for source in sources:
        assert (root / source).exists(), source
        assert f"!{source}" in rules, source
    # And nothing else is.
    assert rules[0] == "*"
    assert {rule[1:] for rule in rules if rule.startswith("!")} == sources


def test_what_is_compiled_here_is_not_sent_to_the_builder(root: Path) -> None:
    rules = (root / ".dockerignore").read_text(encoding="utf-8").splitlines()
    for name in ("index/aladin_index/kernel/_maxsim.so", "service/__pycache__"):
        assert any(
            fnmatch(name, rule) for rule in rules if not rule.startswith("!") and rule != "*"
        )


def test_the_wheel_has_its_packages_its_hook_and_what_it_names(
    instructions: list[Instruction], root: Path
) -> None:
    tables = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))
    wheel = tables["tool"]["hatch"]["build"]["targets"]["wheel"]
    needed = {
        *(folder.split("/")[0] for folder in wheel["only-include"]),
        wheel["hooks"]["custom"]["path"],
        "README.md",  # which the hook reads
        *(file.split("/")[0] for file in tables["project"]["license-files"]),
    }
    copied = {word for copy in values(instructions, "COPY") for word in copy.split()}
    assert needed <= copied


def test_caches_are_kept_where_a_read_only_image_is_written(final: list[Instruction]) -> None:
    (environment,) = values(final, "ENV")
    kept = dict(word.split("=", 1) for word in environment.split())
    for name in ("HOME", "HF_HOME", "MPLCONFIGDIR", "TORCHINDUCTOR_CACHE_DIR"):
        assert kept[name].startswith("/tmp")
    assert kept["HF_HUB_OFFLINE"] == "1"


def test_a_stop_is_the_signal_that_the_service_ends_well_on(final: list[Instruction]) -> None:
    assert values(final, "STOPSIGNAL") == ["SIGTERM"]
    assert json.loads(values(final, "ENTRYPOINT")[0]) == ["aladin"]


@pytest.fixture(scope="module")
def health_check(final: list[Instruction]) -> list[str]:
    """The command of the health check."""
    (line,) = values(final, "HEALTHCHECK")
    return json.loads(line.split(" CMD ", 1)[1])


class Readiness(http.server.BaseHTTPRequestHandler):
    """Answers with the status that its server is to answer with."""

    asked: list[str]
    status = 200

    def do_GET(self) -> None:
        """Answer."""
        self.asked.append(self.path)
        self.send_response(self.status)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, format: str, *arguments: object) -> None:
        """Say nothing."""


@pytest.fixture
def stand_in() -> Iterator[tuple[type[Readiness], int]]:
    """A server on some port: its handler, and the port."""
    handler = type("Handler", (Readiness,), {"asked": []})
    server = http.server.HTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield handler, server.server_port
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.mark.parametrize(("status", "code"), [(200, 0), (503, 1), (500, 1)])
def test_the_health_check_is_well_when_the_service_is_ready(
    health_check: list[str],
    stand_in: tuple[type[Readiness], int],
    status: int,
    code: int,
) -> None:
    handler, port = stand_in
    handler.status = status
    python, *arguments = health_check
    assert python == "python"
    assert "8000" in arguments[-1]
    arguments[-1] = arguments[-1].replace("8000", str(port))
    assert subprocess.run([sys.executable, *arguments], timeout=30).returncode == code
    assert handler.asked == ["/readyz"]


def test_the_health_check_needs_no_key() -> None:
    assert rows_of("/readyz")["GET"].scope == "open"


def test_the_image_listens_where_its_health_check_asks(final: list[Instruction]) -> None:
    assert values(final, "EXPOSE") == ["8000"]
    command = json.loads(values(final, "CMD")[0])
    assert command[command.index("--port") + 1] == "8000"
    assert "--wait" in command  # a container may start before there is an index

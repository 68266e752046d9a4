"""Checks of a finished image: its contents, and the service as started by compose."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from urllib.parse import urlencode

from engine import CheckError, Docker, run

USER = 10001
# Programs that the service does not need and that would help an attacker.
_COMPILERS = ("gcc", "cc", "g++", "ld", "as", "make")
_GRACE_S = 30
# Podman does not run health checks without systemd: their command is run from here.
_OVERRIDE = """\
services:
  service: {healthcheck: {disable: true}}
"""
_QUESTION = {"text": "a black moon and a blue star", "k": 3}


def check_contents(engine: Docker, image: str) -> str:
    """Inspect the image from inside, with a read-only root."""
    inside = [*engine.command, "run", "--rm", "--read-only", "--network=none", "--cap-drop=ALL"]
    if engine.name == "podman":
        inside.append("--no-healthcheck")
    looked_for = " ".join(_COMPILERS)
    script = f"""
        import importlib.metadata, json, os, pathlib, shutil, sys
        from aladin_index.ann import faiss
        from aladin_index.kernel import load_kernel
        assert load_kernel() is not None, "the re-ranking kernel is missing"
        found = [name for name in "{looked_for}".split() if shutil.which(name)]
        try:
            pathlib.Path("/opt/aladin/written").touch()
            written = True
        except OSError:
            written = False
        names = [each.metadata["Name"] for each in importlib.metadata.distributions()]
        seen = dict(uid=os.getuid(), compilers=found, written=written, packages=names)
        print(json.dumps(seen | dict(cards=hasattr(faiss, "StandardGpuResources"))))
    """
    lines = "\n".join(line.removeprefix(" " * 8) for line in script.splitlines())
    output = run([*inside, "--entrypoint=python", image, "-c", lines])
    seen = json.loads(output.splitlines()[-1])
    _expect("user", USER, seen["uid"])
    _expect("compilers", [], seen["compilers"])
    _expect("FAISS for GPUs", image.endswith("-gpu"), seen["cards"])
    _expect("writable root", False, seen["written"])
    unwanted = [name for name in seen["packages"] if name in ("pip", "pytest")]
    _expect("unneeded packages", [], unwanted)
    return f"user {USER}, read-only root, no compiler, {len(seen['packages'])} packages"


def check_service(engine: Docker, image: str, root: Path, work: Path, demo: Path) -> str:
    """Start the service as on a new server, search, start it again, and stop it."""
    if engine.compose is None:
        return "skipped, neither docker compose nor podman-compose is installed"
    (work / "check.env").write_text(
        f"IMAGE={image}\nPHOTOS={demo}/data\nSOURCE=captions.jsonl\n"
        f"MODEL={demo}/run/checkpoint\nPORT=18000\n",
        encoding="utf-8",
    )
    (work / "override.yaml").write_text(_OVERRIDE, encoding="utf-8")
    files = [f"--file={root}/docker/compose.yaml", f"--file={work}/override.yaml"]
    project = [
        *engine.compose,
        f"--env-file={work}/check.env",
        "--project-name=aladin-check",
        *files,
    ]
    if engine.inside:
        subprocess.run([*engine.inside, "ip", "link", "set", "lo", "up"], check=True)
    run([*project, "down", "--volumes"], 120)
    try:
        started = time.monotonic()
        run([*project, "up", "--detach", "--no-build"], 300)
        service = _container(engine, "service")
        _wait_until_ready(engine, service, f"{image}-serve", 600)
        ready_s = time.monotonic() - started
        found = _search(engine)
        page = _get(engine, "http://127.0.0.1:18000/")
        if "<html" not in page:
            raise CheckError(f"expected a page at /, got {page[:80]!r}")
        again_s = _start_again(engine)
        stop_s = _stop(engine, service)
    finally:
        run([*project, "down", "--volumes"], 120)
    return (
        f"ready {ready_s:.0f} s after the first start (the demo's scenes indexed), {found} "
        f"hits, the page is served, the second start repeated no work ({again_s:.0f} s), "
        f"stopped in {stop_s:.1f} s with exit code 0"
    )


def _container(engine: Docker, service: str) -> str:
    label = f"--filter=label=com.docker.compose.service={service}"
    project = "--filter=label=com.docker.compose.project=aladin-check"
    names = run([*engine.command, "ps", "--all", "--format={{.Names}}", label, project]).split()
    if len(names) != 1:
        raise CheckError(f"expected one container of the service {service}, got {names}")
    return names[0]


def _state(engine: Docker, container: str, field: str) -> str:
    return run([*engine.command, "inspect", f"--format={{{{.State.{field}}}}}", container]).strip()


def _health_command(engine: Docker, image: str) -> list[str]:
    """Read the command of the image's health check."""
    described = json.loads(run([*engine.command, "image", "inspect", image]))[0]
    # Podman shows it next to the configuration, Docker inside it.
    check = described.get("Healthcheck") or described["Config"]["Healthcheck"]
    kind, *command = check["Test"]
    _expect("health check", "CMD", kind)
    return command


def _wait_until_ready(engine: Docker, container: str, image: str, timeout_s: float) -> None:
    command = [*engine.command, "exec", container, *_health_command(engine, image)]
    deadline = time.monotonic() + timeout_s
    while subprocess.call(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL):
        if _state(engine, container, "Status") != "running" or time.monotonic() > deadline:
            logs = run([*engine.command, "logs", "--tail=20", container])
            raise CheckError(
                f"{container} has stopped, or is not ready after {timeout_s:.0f} s:\n{logs}"
            )
        time.sleep(1)


def _get(engine: Docker, url: str, body: object = None) -> str:
    """Send a request to the published port, from the namespace in which it is published."""
    script = (
        "import sys, urllib.request as u; "
        "d = sys.argv[2].encode() or None; "
        "r = u.Request(sys.argv[1], d, {'content-type': 'application/json'}); "
        "print(u.urlopen(r, timeout=30).read().decode(errors='replace'))"
    )
    text = "" if body is None else json.dumps(body)
    return run([*engine.inside, sys.executable, "-c", script, url, text])


def _search(engine: Docker) -> int:
    answer = json.loads(_get(engine, "http://127.0.0.1:18000/v1/search/images", _QUESTION))
    _expect("hits", _QUESTION["k"], len(answer["hits"]))
    photo = answer["hits"][0]["id"]
    _get(engine, f"http://127.0.0.1:18000/v1/images/{photo}?size=64")
    explained = urlencode({"id": photo, "text": _QUESTION["text"]})
    drawing = _get(engine, f"http://127.0.0.1:18000/v1/explain.png?{explained}")
    _expect("the drawing's signature", "PNG", drawing[1:4])
    return len(answer["hits"])


def _start_again(engine: Docker) -> float:
    """Start the indexing job again, which must not repeat its work; return the seconds it took."""
    job = _container(engine, "index")
    _expect("the job's exit code", "0", _state(engine, job, "ExitCode"))
    started = time.monotonic()
    run([*engine.command, "start", "--attach", job], 120)
    took_s = time.monotonic() - started
    _expect("the job's exit code", "0", _state(engine, job, "ExitCode"))
    # Printed after a build; other messages do not go to standard output.
    built = run([*engine.command, "logs", job]).count("/index: generation")
    _expect("generations built", 1, built)
    return took_s


def _stop(engine: Docker, container: str) -> float:
    started = time.monotonic()
    run([*engine.command, "stop", f"--time={_GRACE_S}", container], _GRACE_S + 30)
    took_s = time.monotonic() - started
    if took_s > _GRACE_S:
        raise CheckError(
            f"expected {container} to stop within {_GRACE_S} s, it took {took_s:.0f} s"
        )
    _expect("exit code", "0", _state(engine, container, "ExitCode"))
    return took_s


def _expect(what: str, expected: object, found: object) -> None:
    if expected != found:
        raise CheckError(f"{what}: expected {expected}, got {found}")

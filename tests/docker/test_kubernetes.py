"""The Kubernetes manifests: valid, of one piece, and fit for what they start."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import kubernetes_validate
import pytest
import typer.main
import yaml

from aladin_index.format.layout import EngineLocation
from aladin_service.cli import app
from aladin_service.http.access.control import NEEDED
from aladin_service.http.access.policy import make_policy
from aladin_service.http.connections import trusted_proxies
from aladin_service.keys_file import add_key
from aladin_service.settings import ServiceSettings

Tree = dict[str, Any]

# The oldest release that is still to take them, and the newest that the validator knows.
RELEASES = ("1.29", kubernetes_validate.latest_version())


@pytest.fixture(scope="module")
def folder(docker: Path) -> Path:
    """The folder of the manifests."""
    return docker / "kubernetes"


@pytest.fixture(scope="module")
def manifests(folder: Path) -> dict[str, Tree]:
    """All objects by kind; but those of the volumes, by kind and name."""
    found: dict[str, Tree] = {}
    for file in sorted(folder.glob("*.yaml")):
        if file.name != "kustomization.yaml":
            for tree in yaml.safe_load_all(file.read_text(encoding="utf-8")):
                kind, name = tree["kind"], tree["metadata"]["name"]
                key = f"{kind} {name}" if kind == "PersistentVolumeClaim" else kind
                assert key not in found
                found[key] = tree
    return found


@pytest.fixture(scope="module")
def pods(manifests: dict[str, Tree]) -> dict[str, Tree]:
    """The pods of the replicas and of the job."""
    return {kind: manifests[kind]["spec"]["template"] for kind in ("Deployment", "Job")}


def container(pod: Tree) -> Tree:
    """Return the one container of a pod."""
    (found,) = pod["spec"]["containers"]
    return found


def given(pod: Tree, manifests: dict[str, Tree]) -> dict[str, str | None]:
    """Return the variables of a container; None: a secret."""
    settings = manifests["ConfigMap"]
    (source,) = container(pod)["envFrom"]
    assert source["configMapRef"]["name"] == settings["metadata"]["name"]
    return settings["data"] | dict.fromkeys(one["name"] for one in container(pod)["env"])


def selected(labels: Tree, selector: Tree) -> bool:
    """Whether labels are those that a selector asks for."""
    return selector.items() <= labels.items()


def words_below(tree: object) -> Iterator[str]:
    """Return all keys of a tree."""
    if isinstance(tree, dict):
        for key, value in tree.items():
            yield key
            yield from words_below(value)
    elif isinstance(tree, list):
        for each in tree:
            yield from words_below(each)


@pytest.mark.parametrize("release", RELEASES)
def test_they_are_valid(manifests: dict[str, Tree], release: str) -> None:
    for tree in manifests.values():
        kubernetes_validate.validate(tree, release, strict=True)


def test_all_but_the_job_are_applied_together(folder: Path) -> None:
    kustomization = yaml.safe_load((folder / "kustomization.yaml").read_text(encoding="utf-8"))
    files = {file.name for file in folder.glob("*.yaml")}
    assert set(kustomization["resources"]) == files - {"kustomization.yaml", "push-job.yaml"}
    assert len(kustomization["resources"]) == len(set(kustomization["resources"]))


def test_kustomize_puts_them_together(folder: Path, manifests: dict[str, Tree]) -> None:
    kubectl = shutil.which("kubectl")
    if kubectl is None:
        pytest.skip("kubectl is not installed")
    said = subprocess.run(
        [kubectl, "kustomize", str(folder)], capture_output=True, text=True, check=True
    ).stdout
    made = list(yaml.safe_load_all(said))
    assert len(made) == len(manifests) - 1  # without the job
    for tree in made:
        kubernetes_validate.validate(tree, RELEASES[-1], strict=True)
        if tree["kind"] != "Namespace":
            assert tree["metadata"]["namespace"] == manifests["Namespace"]["metadata"]["name"]
    (replicas,) = [tree for tree in made if tree["kind"] == "Deployment"]
    # Both take the same image, as it is named where the cluster pulls it.
    assert (
        container(replicas["spec"]["template"])["image"]
        == container(manifests["Job"]["spec"]["template"])["image"]
    )


@pytest.mark.parametrize("kind", ["Deployment", "Job"])
def test_a_pod_can_do_little(pods: dict[str, Tree], docker: Path, kind: str) -> None:
    spec, own = pods[kind]["spec"], container(pods[kind])
    dockerfile = (docker / "Dockerfile").read_text(encoding="utf-8")
    user = re.search(r"^USER (\d+):(\d+)$", dockerfile, re.MULTILINE)
    assert user is not None
    context = spec["securityContext"]
    assert context["runAsNonRoot"] is True
    assert (context["runAsUser"], context["runAsGroup"]) == (int(user[1]), int(user[2]))
    assert context["fsGroup"] == int(user[2])
    assert context["seccompProfile"] == {"type": "RuntimeDefault"}
    assert own["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert spec["automountServiceAccountToken"] is False
    assert spec["enableServiceLinks"] is False
    assert not {"hostNetwork", "hostPID", "hostPath", "hostPort"} & set(words_below(spec))
    assert own["resources"]["limits"]["memory"]
    assert own["resources"]["requests"]["cpu"]


@pytest.mark.parametrize("kind", ["Deployment", "Job"])
def test_commands_are_of_the_command_line_and_name_what_is_mounted(
    pods: dict[str, Tree], kind: str
) -> None:
    own = container(pods[kind])
    words: list[str] = list(own["args"])
    command: Any = typer.main.get_command(app)
    while hasattr(command, "commands"):
        command = command.commands[words.pop(0)]
    known = {option for parameter in command.params for option in parameter.opts}
    assert {word for word in words if word.startswith("--")} <= known
    mounted = {mount["mountPath"] for mount in own["volumeMounts"]}
    assert {f"/{word.split('/')[1]}" for word in words if word.startswith("/")} <= mounted
    # What is mounted is there, and the root cannot be written.
    volumes = {volume["name"] for volume in pods[kind]["spec"]["volumes"]}
    assert {mount["name"] for mount in own["volumeMounts"]} == volumes
    assert "/tmp" in mounted


def test_volumes_are_claimed(pods: dict[str, Tree], manifests: dict[str, Tree]) -> None:
    used = {
        volume["persistentVolumeClaim"]["claimName"]
        for pod in pods.values()
        for volume in pod["spec"]["volumes"]
        if "persistentVolumeClaim" in volume
    }
    claimed = {key.split()[1] for key in manifests if key.startswith("PersistentVolumeClaim ")}
    assert used == claimed


def test_what_the_job_pushes_is_what_was_merged_and_what_replicas_serve(
    pods: dict[str, Tree], root: Path
) -> None:
    def claim(pod: Tree, path: str) -> tuple[str, bool]:
        folder = f"/{path.split('/')[1]}"
        (mount,) = [one for one in container(pod)["volumeMounts"] if one["mountPath"] == folder]
        (volume,) = [one for one in pod["spec"]["volumes"] if one["name"] == mount["name"]]
        return volume["persistentVolumeClaim"]["claimName"], not mount.get("readOnly", False)

    file = root / "docs" / "cluster" / "kubernetes-merge-job.yaml"
    merging = yaml.safe_load(file.read_text(encoding="utf-8"))["spec"]["template"]
    merged = re.search(r"--out (\S+)", container(merging)["command"][-1])
    assert merged is not None
    pushed = container(pods["Job"])["args"]
    folder = pushed[pushed.index("--out") + 1]
    served = container(pods["Deployment"])["args"][1]
    assert "--wait" in container(pods["Deployment"])["args"]  # the Job may come later
    assert claim(pods["Job"], folder) == (claim(pods["Deployment"], served)[0], True)
    assert not claim(pods["Deployment"], served)[1]
    assert pushed[2] == merged[1]
    assert claim(pods["Job"], pushed[2]) == (claim(merging, merged[1])[0], False)
    assert pushed[pushed.index("--url") + 1] == "$(ALADIN_ENGINE_URL)"


def test_settings_are_settings(
    pods: dict[str, Tree],
    manifests: dict[str, Tree],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    variables = given(pods["Deployment"], manifests)
    # The network policy lets in nobody but the ingress and what watches the service.
    assert trusted_proxies({"FORWARDED_ALLOW_IPS": str(variables.pop("FORWARDED_ALLOW_IPS"))})
    for name, value in variables.items():
        assert name.removeprefix("ALADIN_").lower() in ServiceSettings.model_fields, name
        if value is not None:
            monkeypatch.setenv(name, value)
    settings = ServiceSettings()
    assert settings.read_only
    args = container(pods["Job"])["args"]
    name = args[args.index("--name") + 1]
    assert settings.engine_url is not None
    EngineLocation(url=settings.engine_url, name=name)
    # Whoever has no key gets nothing.
    add_key(tmp_path / "keys.json", "ci", ["read"])
    with_keys = settings.model_copy(update={"keys_file": tmp_path / "keys.json"})
    assert make_policy(with_keys, "0.0.0.0").anonymous == set()


def test_secrets_are_named_and_not_written(
    pods: dict[str, Tree], manifests: dict[str, Tree], folder: Path
) -> None:
    assert "Secret" not in manifests
    text = "".join(file.read_text(encoding="utf-8") for file in folder.glob("*.yaml"))
    assert not re.search("stringData|password:", text)
    variables = given(pods["Deployment"], manifests)
    assert {name for name, value in variables.items() if value is None} == {"ALADIN_ENGINE_TOKEN"}
    # The file of keys lies where the settings look for it, and its group may read it.
    (keys,) = [one for one in pods["Deployment"]["spec"]["volumes"] if "secret" in one]
    assert keys["secret"]["defaultMode"] == 0o440
    (mount,) = [
        one for one in container(pods["Deployment"])["volumeMounts"] if one["name"] == keys["name"]
    ]
    file = variables["ALADIN_KEYS_FILE"]
    assert file is not None
    assert mount["mountPath"] == str(Path(file).parent)


def test_probes_ask_what_is_open_where_it_is_answered(pods: dict[str, Tree]) -> None:
    own = container(pods["Deployment"])
    open_paths = {row.path for row in NEEDED if row.scope == "open" and row.method == "GET"}
    (port,) = own["ports"]
    assert own["args"][own["args"].index("--port") + 1] == str(port["containerPort"])
    probes = {name: own[f"{name}Probe"]["httpGet"] for name in ("startup", "liveness", "readiness")}
    assert {probe["path"] for probe in probes.values()} <= open_paths
    assert {probe["port"] for probe in probes.values()} == {port["name"]}
    # An engine that is away is no reason to start a replica again.
    assert probes["liveness"]["path"] == probes["startup"]["path"] == "/healthz"
    assert probes["readiness"]["path"] == "/readyz"


def test_a_replica_is_left_in_peace_until_it_has_finished(
    pods: dict[str, Tree], manifests: dict[str, Tree]
) -> None:
    spec = pods["Deployment"]["spec"]
    name, seconds = container(pods["Deployment"])["lifecycle"]["preStop"]["exec"]["command"]
    assert name == "sleep"
    shutdown_s = int(manifests["ConfigMap"]["data"]["ALADIN_SHUTDOWN_S"])
    assert spec["terminationGracePeriodSeconds"] > int(seconds) + shutdown_s
    # It is told to nobody any more when it stops to answer.
    readiness = container(pods["Deployment"])["readinessProbe"]
    assert int(seconds) > readiness["periodSeconds"] * readiness["failureThreshold"]


def test_the_parts_mean_the_replicas(pods: dict[str, Tree], manifests: dict[str, Tree]) -> None:
    replicas, job = (pods[kind]["metadata"]["labels"] for kind in ("Deployment", "Job"))
    for selector in (
        manifests["Deployment"]["spec"]["selector"]["matchLabels"],
        manifests["Service"]["spec"]["selector"],
        manifests["PodDisruptionBudget"]["spec"]["selector"]["matchLabels"],
        pods["Deployment"]["spec"]["topologySpreadConstraints"][0]["labelSelector"]["matchLabels"],
    ):
        assert selected(replicas, selector)
        assert not selected(job, selector)
    scaled = manifests["HorizontalPodAutoscaler"]["spec"]
    deployment = manifests["Deployment"]
    assert scaled["scaleTargetRef"] == {
        "apiVersion": deployment["apiVersion"],
        "kind": "Deployment",
        "name": deployment["metadata"]["name"],
    }
    assert "replicas" not in deployment["spec"]
    assert scaled["minReplicas"] >= 3
    (port,) = manifests["Service"]["spec"]["ports"]
    assert port["targetPort"] == container(pods["Deployment"])["ports"][0]["name"]


def test_the_network_lets_through_what_is_needed(
    pods: dict[str, Tree], manifests: dict[str, Tree]
) -> None:
    policy = manifests["NetworkPolicy"]["spec"]
    for pod in pods.values():  # the job asks the engine, too
        assert selected(pod["metadata"]["labels"], policy["podSelector"]["matchLabels"])
    assert set(policy["policyTypes"]) == {"Ingress", "Egress"}
    (rule,) = policy["ingress"]
    assert [port["port"] for port in rule["ports"]] == ["http"]
    assert all(rule["from"])  # an empty one would be everybody
    out: dict[int, str] = {}
    for rule in policy["egress"]:
        (to,) = rule["to"]
        labels = to["namespaceSelector"]["matchLabels"]
        for port in rule["ports"]:
            out[port["port"]] = labels["kubernetes.io/metadata.name"]
    engine = urlsplit(manifests["ConfigMap"]["data"]["ALADIN_ENGINE_URL"])
    assert engine.port is not None
    assert engine.hostname is not None
    assert out[engine.port] == engine.hostname.split(".")[1]
    assert set(out) == {53, engine.port}

"""The files of examples/deploy: their commands, and their values against those of the server."""

from __future__ import annotations

import http.client
import json
import re
import signal
import subprocess
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import yaml
from container_file import Stage, build, health_command, instructions, stages, value_of
from processes import WAIT_SECONDS, finish, free_port, wait_for

from rag_rewards.cli.app import make_app
from rag_rewards.cli.serve import RequestOptions
from rag_rewards.server.access import OPEN_ROUTES
from rag_rewards.server.routes import NAMED_ROUTES
from rag_rewards.server.run import GRACE_SECONDS, TOKEN_VARIABLE

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "examples" / "deploy"
CONTAINER = (DEPLOY / "Containerfile").read_text("utf-8")
NGINX = (DEPLOY / "nginx.conf").read_text("utf-8")
KUBERNETES = (DEPLOY / "kubernetes.yaml").read_text("utf-8")
OBJECTS = {each["kind"]: each for each in yaml.safe_load_all(KUBERNETES)}
POD = OBJECTS["Deployment"]["spec"]["template"]["spec"]
[SERVER] = POD["containers"]
LAST = stages(CONTAINER)[-1]
START = json.loads(value_of(LAST, "ENTRYPOINT"))
TOKEN = "s3cret"
ROW = {"response": r"\boxed{Seine}", "answers": ["Seine"], "supporting": [1]}


def value_after(words: list[str], option: str, default: Any = None) -> Any:
    return words[words.index(option) + 1] if option in words else default


def deadline(arguments: list[str]) -> float:
    return float(value_after(arguments, "--deadline", RequestOptions().deadline))


class TestContainerFile:
    def test_the_base_has_a_tag(self) -> None:
        [base] = [each.value for each in instructions(CONTAINER) if each.value.startswith("BASE=")]
        assert re.fullmatch(r"BASE=docker\.io/library/python:3\.\d+\.\d+-slim-\w+", base)
        assert {stage[0].value.split()[0] for stage in stages(CONTAINER)} == {"${BASE}"}

    def test_the_server_is_not_root(self) -> None:
        assert re.fullmatch(r"[1-9]\d+:[1-9]\d+", value_of(LAST, "USER"))
        names = [each.name for each in LAST]
        assert names.index("USER") > max(i for i, name in enumerate(names) if name == "RUN")

    def test_nothing_is_cached_and_there_is_no_token(self) -> None:
        for each in instructions(CONTAINER):
            assert each.name != "RUN" or "--no-cache-dir" in each.value
            assert each.name not in ("ENV", "ARG") or "TOKEN" not in each.value

    def test_ports_agree(self) -> None:
        port = value_after(START, "--port")
        assert value_of(LAST, "EXPOSE") == port
        assert f"http://127.0.0.1:{port}/health" in health_command(LAST)[-1]

    @pytest.mark.slow
    def test_its_commands_in_an_empty_environment(self, tmp_path: Path) -> None:
        image = build(CONTAINER, ROOT, tmp_path)
        port = str(free_port())
        start = [*START, *json.loads(value_of(LAST, "CMD"))]
        start = [port if word == "8000" else word for word in start]
        refuse_without_a_token(image, start)
        check = [word.replace(":8000", f":{port}") for word in health_command(LAST)]
        assert run(image, check).returncode != 0
        environment = image.environment | {TOKEN_VARIABLE: TOKEN}
        program = str(image.root / "venv/bin/rag-rewards")
        folder = image.place(".")
        server = subprocess.Popen([program, *start[1:]], cwd=folder, env=environment)
        try:
            wait_for(lambda: run(image, check).returncode == 0)
            assert post(port, "other") == 401
            assert post(port, TOKEN) == 200
        finally:
            server.send_signal(signal.SIGTERM)
            finish(server)
        assert server.returncode in (0, -signal.SIGTERM)


def run(image: Stage, command: list[str], **more: str) -> subprocess.CompletedProcess[str]:
    """Run a command in an image. The programs are those of its virtual environment."""
    program = str(image.root / "venv/bin" / command[0])
    return subprocess.run(
        [program, *command[1:]],
        cwd=image.place("."),
        env=image.environment | more,
        capture_output=True,
        text=True,
        check=False,
        timeout=WAIT_SECONDS,
    )


def refuse_without_a_token(image: Stage, start: list[str]) -> None:
    """The server does not start without a token, or with the empty one of the Secret."""
    empty = OBJECTS["Secret"]["stringData"]["token"]
    assert empty == ""
    for more in ({}, {TOKEN_VARIABLE: empty}):
        refused = run(image, start, **more)
        assert refused.returncode == 2
        assert TOKEN_VARIABLE in refused.stderr


def post(port: str, token: str) -> int:
    """Return the status of a request with this token."""
    headers = {"Authorization": f"Bearer {token}"}
    with closing(
        http.client.HTTPConnection("127.0.0.1", int(port), timeout=WAIT_SECONDS)
    ) as connection:
        connection.request("POST", "/score", json.dumps({"rollouts": [ROW]}), headers)
        return connection.getresponse().status


class TestKubernetes:
    def test_the_arguments_are_options_of_the_server(self) -> None:
        collection = make_app()["serve"].assemble_argument_collection(parse_docstring=True)
        names = {name for argument in collection for name in argument.names}
        words = [*START[2:], *SERVER["args"]]
        assert {word for word in words if word.startswith("-")} <= names
        make_app().parse_args([*START[1:], *SERVER["args"]])  # raises for a wrong value

    def test_the_environment_is_read_by_the_server(self) -> None:
        [variable] = SERVER["env"]
        assert variable["name"] == TOKEN_VARIABLE
        secret = variable["valueFrom"]["secretKeyRef"]
        assert secret["name"] == OBJECTS["Secret"]["metadata"]["name"]
        assert secret["key"] in OBJECTS["Secret"]["stringData"]

    def test_the_command_of_the_page_applies_all_but_the_secret(self) -> None:
        labels = {kind: each["metadata"].get("labels") for kind, each in OBJECTS.items()}
        app = {"app": "rag-rewards"}
        assert labels == {"Secret": None, "Deployment": app, "Service": app}
        page = (ROOT / "docs" / "serve.md").read_text("utf-8")
        assert "kubectl apply -f examples/deploy/kubernetes.yaml -l app=rag-rewards" in page

    def test_probes(self) -> None:
        request = SERVER["readinessProbe"]["httpGet"]
        assert request["path"] in NAMED_ROUTES & OPEN_ROUTES  # it sends no token
        [port] = SERVER["ports"]
        assert request["port"] == SERVER["livenessProbe"]["tcpSocket"]["port"] == port["name"]
        assert str(port["containerPort"]) == value_after(START, "--port")

    def test_the_service_reaches_the_pods(self) -> None:
        labels = OBJECTS["Deployment"]["spec"]["template"]["metadata"]["labels"]
        service = OBJECTS["Service"]["spec"]
        assert service["selector"] == labels
        assert OBJECTS["Deployment"]["spec"]["selector"]["matchLabels"] == labels
        assert service["ports"][0]["targetPort"] == SERVER["ports"][0]["name"]

    def test_requests_are_completed_before_the_end(self) -> None:
        pause = float(SERVER["lifecycle"]["preStop"]["exec"]["command"][1])
        needed = pause + deadline(SERVER["args"]) + GRACE_SECONDS
        assert POD["terminationGracePeriodSeconds"] > needed

    def test_rights(self) -> None:
        user = f"{POD['securityContext']['runAsUser']}:{POD['securityContext']['runAsGroup']}"
        assert user == value_of(LAST, "USER")
        assert POD["securityContext"]["runAsNonRoot"]
        assert not POD["automountServiceAccountToken"]
        rights = SERVER["securityContext"]
        assert rights["readOnlyRootFilesystem"]
        assert not rights["allowPrivilegeEscalation"]
        assert rights["capabilities"] == {"drop": ["ALL"]}
        assert SERVER["volumeMounts"][0]["mountPath"] == "/tmp"  # noqa: S108 (HOME of the image)
        assert "HOME=/tmp" in value_of(LAST, "ENV")


class TestNginx:
    def directive(self, name: str) -> str:
        [value] = re.findall(rf"^ *{name} +(.+);$", NGINX, re.MULTILINE)
        return str(value)

    def test_limits_agree_with_the_server(self) -> None:
        defaults = RequestOptions()
        assert self.directive("client_max_body_size") == f"{defaults.max_body}m"
        for name in ("proxy_read_timeout", "proxy_send_timeout"):
            assert float(self.directive(name).removesuffix("s")) > defaults.deadline

    def test_the_server_is_that_of_the_documentation(self) -> None:
        assert self.directive("server") == "127.0.0.1:8000"
        page = (ROOT / "docs" / "serve.md").read_text("utf-8")
        for name in ("client_max_body_size", "client_header_timeout", "proxy_read_timeout"):
            [row] = [line for line in page.splitlines() if line.startswith("| ") and name in line]
            assert f"`{self.directive(name)}`" in row

    def test_lines_are_directives_and_blocks(self) -> None:
        lines = [line.partition("#")[0].strip() for line in NGINX.splitlines()]
        assert all(line[-1] in ";{}" for line in lines if line)
        assert NGINX.count("{") == NGINX.count("}")

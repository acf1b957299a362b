"""A local server of the S3 protocol, with one bucket."""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

import pytest

SECRET = "a-secret-key-of-the-tests"


@dataclass
class Bucket:
    """A bucket of the server. `client` is a client of boto3, which the package does not use."""

    client: Any
    name: str
    environment: dict[str, str]

    def url(self, key: str) -> str:
        return f"s3://{self.name}/{key}"

    def write(self, key: str, data: bytes) -> str:
        self.client.put_object(Bucket=self.name, Key=key, Body=data)
        return self.url(key)

    def read(self, key: str) -> bytes:
        return self.client.get_object(Bucket=self.name, Key=key)["Body"].read()

    def keys(self, prefix: str = "") -> list[str]:
        found = self.client.list_objects_v2(Bucket=self.name, Prefix=prefix).get("Contents", [])
        return sorted(each["Key"] for each in found)


@contextlib.contextmanager
def object_store() -> Iterator[Bucket]:
    """Start a server whose address and credentials are in the environment, until the end."""
    pytest.importorskip("pyarrow.fs", reason="needs pyarrow")
    server_module = pytest.importorskip("moto.server", reason="needs moto, from the extra dev")
    boto3 = pytest.importorskip("boto3", reason="needs boto3, from the extra dev")
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = server_module.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    environment = {
        "AWS_ENDPOINT_URL": f"http://{host}:{port}",
        "AWS_ACCESS_KEY_ID": "tests",
        "AWS_SECRET_ACCESS_KEY": SECRET,
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_EC2_METADATA_DISABLED": "true",
    }
    try:
        with patch.dict(os.environ, environment):
            client = boto3.client("s3")
            client.create_bucket(Bucket="rollouts")
            yield Bucket(client, "rollouts", environment)
            client.close()
    finally:
        server.stop()

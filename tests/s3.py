"""A real S3 server on loopback, in a process of its own: moto's."""

import os
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from itertools import count
from typing import Any

_SERVE = """
import sys
from moto.server import ThreadedMotoServer
server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
server.start()
print(server.get_host_and_port()[1], flush=True)
sys.stdin.read()
"""


@dataclass
class S3Server:
    """The server, and the environment of whoever uses it."""

    endpoint: str
    _numbers: Iterator[int] = field(default_factory=count)

    @property
    def environment(self) -> dict[str, str]:
        keys = {"AWS_ACCESS_KEY_ID": "testing", "AWS_SECRET_ACCESS_KEY": "testing", "AWS_DEFAULT_REGION": "us-east-1"}
        return {"AWS_ENDPOINT_URL": self.endpoint, **keys}

    @cached_property
    def client(self) -> Any:
        return self.service("s3")

    def service(self, name: str) -> Any:
        import boto3

        return boto3.client(
            name,
            endpoint_url=self.endpoint,
            region_name="us-east-1",
            aws_access_key_id="testing",
            aws_secret_access_key="testing",  # noqa: S106
        )

    def bucket(self) -> str:
        """Make a new bucket."""
        name = f"bucket-{next(self._numbers)}"
        self.client.create_bucket(Bucket=name)
        return name

    def keys(self, bucket: str) -> list[str]:
        return [each["Key"] for each in self.client.list_objects_v2(Bucket=bucket).get("Contents", [])]

    def empty(self, bucket: str) -> None:
        for key in self.keys(bucket):
            self.client.delete_object(Bucket=bucket, Key=key)

    @contextmanager
    def checking_credentials(self) -> Iterator[None]:
        """Refuse everyone whom the server does not know; otherwise, it takes any credentials."""
        self._check_from(b"0")
        try:
            yield
        finally:
            self._check_from(b"inf")

    def _check_from(self, request: bytes) -> None:
        url, headers = f"{self.endpoint}/moto-api/reset-auth", {"Content-Type": "text/plain"}
        urllib.request.urlopen(urllib.request.Request(url, data=request, headers=headers)).close()


@contextmanager
def serving_s3() -> Iterator[S3Server]:
    """Run a server until the end of the block."""
    with subprocess.Popen(
        [sys.executable, "-c", _SERVE],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env={**os.environ, "AWS_ACCESS_KEY_ID": "testing", "AWS_SECRET_ACCESS_KEY": "testing"},
    ) as process:
        assert process.stdin is not None and process.stdout is not None
        yield S3Server(f"http://127.0.0.1:{int(process.stdout.readline())}")
        process.stdin.close()
        process.wait(30)

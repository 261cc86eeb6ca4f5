"""Blocking HTTP client for this user's engine, over its Unix socket or its port on loopback."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from speclsp.daemon import endpoint
from speclsp.daemon.endpoint import EngineEndpoint


@contextmanager
def request(
    engine: EngineEndpoint, method: str, path: str, body: Mapping[str, Any] | None = None, *, timeout_s: float
) -> Iterator[http.client.HTTPResponse]:
    """Send one request; the response is read inside the `with` block. The connection closes after it.

    `timeout_s`: to connect, and between two reads. Raises OSError, http.client.HTTPException, EngineError: the socket
    belongs to another user.
    """
    connection = http.client.HTTPConnection("localhost", timeout=timeout_s)
    connection.sock = endpoint.connect(engine, timeout_s)
    headers = {"content-type": "application/json"}
    if engine.token:
        headers["authorization"] = f"Bearer {engine.token}"
    try:
        connection.request(method, path, json.dumps(body) if body is not None else None, headers)
        yield connection.getresponse()
    finally:
        connection.close()

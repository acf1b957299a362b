"""Addresses of servers, and how to print them without their credentials.

An address may contain a user and a password (`http://user:password@host`). They are sent as a
header and removed from the address at once, so that no message, log line or fingerprint of this
package or of an HTTP library can contain them.
"""

from __future__ import annotations

from base64 import b64encode
from dataclasses import dataclass, field
from urllib.parse import unquote, urlsplit

from rag_rewards.errors import UsageError


@dataclass(frozen=True)
class Address:
    """The URL of a server, and the value of its Authorization header, if the URL had one."""

    url: str
    authorization: str | None = field(default=None, repr=False)


def parse_address(text: str) -> Address:
    """Parse the address of a server. A trailing `/` or `/v1` is removed.

    Raises UsageError for anything but an http:// or https:// address with a host.
    """
    try:
        parts = urlsplit(text.strip())
        valid = parts.scheme.lower() in ("http", "https") and bool(parts.hostname)
        _ = parts.port  # raises ValueError unless it is a number
    except ValueError:
        valid = False
    if not valid:
        raise UsageError(
            f"{without_credentials(text)!r} is not an address such as http://host:8000"
        )
    if parts.query or parts.fragment or "@" in parts.path:
        raise UsageError(
            f"the address {without_credentials(text)!r} has a query, a fragment or an '@' in its "
            "path: remove it, and write '/', '?', '#' and '@' of a password as %2F, %3F, %23, %40"
        )
    credentials, _, host = parts.netloc.rpartition("@")
    path = parts.path.rstrip("/").removesuffix("/v1")
    return Address(f"{parts.scheme}://{host}{path}", _basic(credentials) if credentials else None)


def _basic(credentials: str) -> str:
    user, _, password = credentials.partition(":")
    return "Basic " + b64encode(f"{unquote(user)}:{unquote(password)}".encode()).decode()


def without_credentials(text: str) -> str:
    """Return a text that can be a URL for a message: without user, password, query and fragment.

    Everything up to the last `@` counts as credentials, since a password may contain any
    character. Text that is not a URL is returned unchanged.

    >>> without_credentials("http://me:secret@host:8000/v1?key=secret")
    'http://***@host:8000/v1'
    >>> without_credentials("models/qwen")
    'models/qwen'
    """
    scheme, separator, rest = text.partition("://")
    if not separator:
        return text
    credentials, _, host = rest.rpartition("@")
    for mark in "?#":
        host = host.partition(mark)[0]
    return f"{scheme}://***@{host}" if credentials else f"{scheme}://{host}"


def is_url(text: str) -> bool:
    """Return whether a model is the address of a server."""
    return text.lower().startswith(("http://", "https://"))

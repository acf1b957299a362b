"""Addresses of servers, and how to print them without their credentials.

An address may contain a user and a password (`http://user:password@host`). They are sent as a
header and removed from the address at once, so that no message, log line or fingerprint of this
package or of an HTTP library can contain them.
"""

from __future__ import annotations

import threading
from base64 import b64encode
from collections.abc import Sequence
from dataclasses import dataclass, field
from urllib.parse import unquote, urlsplit

from rag_rewards.errors import UsageError


@dataclass(frozen=True)
class Address:
    """The URL of a server, with what its requests need and no message shows.

    authorization  value of the Authorization header, if the URL had a user and a password
    query          query of all requests, with its question mark
    """

    url: str
    authorization: str | None = field(default=None, repr=False)
    query: str = field(default="", repr=False)


def parse_address(text: str, *, is_base: bool = False) -> Address:
    """Parse the address of a server.

    is_base  whether the address is that before `/chat/completions`, which can have a query.
             Otherwise, a trailing `/v1` is removed, and a query is invalid

    Raises UsageError for anything but an http:// or https:// address with a host.
    """
    text = text.strip()
    try:
        parts = urlsplit(text if text.isprintable() else "")
        valid = parts.scheme.lower() in ("http", "https") and bool(parts.hostname)
        _ = parts.port  # raises ValueError unless it is a number
    except ValueError:
        valid = False
    if not valid:
        raise UsageError(
            f"{without_credentials(text)!r} is not an address such as http://host:8000"
        )
    if (parts.query and not is_base) or parts.fragment or "@" in parts.path + parts.query:
        raise UsageError(
            f"the address {without_credentials(text)!r} has a query, a fragment or an '@' in its "
            "path: remove it, and write '/', '?', '#' and '@' of a password as %2F, %3F, %23, %40"
        )
    credentials, _, host = parts.netloc.rpartition("@")
    path = parts.path.rstrip("/")
    url = f"{parts.scheme}://{host}{path if is_base else path.removesuffix('/v1')}"
    query = f"?{parts.query}" if parts.query else ""
    return Address(url, _basic(credentials) if credentials else None, query)


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


@dataclass
class Server:
    """A server of a model, and the number of tokens in progress there, in all threads."""

    address: Address
    tokens: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False, repr=False)

    @property
    def url(self) -> str:
        """The URL, without credentials."""
        return self.address.url

    def add_load(self, tokens: int) -> None:
        """Add tokens in progress; remove them if the number is negative."""
        with self._lock:
            self.tokens += tokens


def servers_of(urls: str | Sequence[str], *, is_base: bool = False) -> tuple[Server, ...]:
    """Return the servers of these URLs, without duplicates. UsageError for an invalid URL."""
    texts = [urls] if isinstance(urls, str) else list(urls)
    if not texts:
        raise UsageError("url contains no address of a server: pass at least one")
    addresses = dict.fromkeys(parse_address(text, is_base=is_base) for text in texts)
    return tuple(map(Server, addresses))

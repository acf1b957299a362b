"""Access to the server: the token of a request, and the web pages that may send requests."""

from __future__ import annotations

import base64
import binascii
import hmac
from collections.abc import Mapping
from ipaddress import ip_address
from urllib.parse import urlsplit

from rag_rewards.server.request_errors import RequestError

OPEN_ROUTES = frozenset({"/health"})
"""Routes without a token check, because monitoring systems should not have the token."""
_LOCAL_DOMAINS = (".localhost", ".local", ".internal", ".lan", ".test", ".home.arpa")


def refusal(
    method: str, path: str, headers: Mapping[bytes, bytes], token: str | None
) -> RequestError | None:
    """Return why a request is refused before its body is read; None if it is accepted.

    A client sends the token as `Authorization: Bearer TOKEN`, or as the password of Basic
    authentication (`http://user:TOKEN@host/…`). The comparison takes constant time.

    Web pages of other sites cannot use a server that their visitor can reach: a POST that a browser
    sends for another site is refused. Without a token, a request for a domain name is refused,
    because a page can let its own domain point to this server (DNS rebinding), and a POST must
    declare JSON, because a page can send other types without permission of the server.
    """
    is_open = path in OPEN_ROUTES
    if token is not None and not is_open:
        candidate = token_of(headers.get(b"authorization", b""))
        if not candidate or not hmac.compare_digest(candidate, token.encode()):
            message = "missing or wrong token"
            challenge = {"WWW-Authenticate": 'Basic realm="rag-rewards"'}
            return RequestError(401, "Unauthorized", message, headers=challenge)
    host = headers.get(b"host", b"")
    if token is None and not is_open and is_public_name(name := host.decode("latin-1")):
        message = (
            f"without a token, the server accepts only addresses and local names, not {name}: "
            "start it with --token-file"
        )
        return RequestError(403, "Forbidden", message)
    if method != "POST":
        return None
    if is_cross_site(headers.get(b"sec-fetch-site"), headers.get(b"origin"), host):
        message = "requests from web pages of other sites are not accepted"
        return RequestError(403, "Forbidden", message)
    content_type = headers.get(b"content-type", b"").decode("latin-1")
    if token is None and not is_json(content_type):
        problem = f"found {content_type[:80]!r}" if content_type else "it is missing"
        message = f"the header Content-Type must be application/json, {problem}"
        return RequestError(415, "UnsupportedMediaType", message)
    return None


def is_public_name(host: str) -> bool:
    """Return whether a Host header contains a domain name that anyone can register.

    >>> is_public_name("example.com:8000")
    True
    >>> any(map(is_public_name, ["localhost:8000", "127.0.0.1", "[::1]:80", "rewards", "a.local"]))
    False
    """
    try:
        name = (urlsplit(f"//{host}").hostname or "").rstrip(".")
    except ValueError:
        return True
    try:
        ip_address(name)
    except ValueError:
        return "." in name and not name.endswith(_LOCAL_DOMAINS)
    return False


def is_cross_site(fetch_site: bytes | None, origin: bytes | None, host: bytes) -> bool:
    """Return whether a browser sends a request for a page of another site than `host`.

    Programs other than browsers send neither of the two headers.

    >>> is_cross_site(None, None, b"a:80"), is_cross_site(None, b"http://a:80", b"a:80")
    (False, False)
    >>> is_cross_site(b"cross-site", None, b"a:80"), is_cross_site(None, b"null", b"a:80")
    (True, True)
    """
    if fetch_site is not None:
        return fetch_site not in (b"same-origin", b"none")
    return origin is not None and origin.partition(b"://")[2] != host


def token_of(header: bytes) -> bytes:
    """Return the token in an Authorization header; b"" if there is none.

    >>> token_of(b"Bearer secret"), token_of(b"Basic " + base64.b64encode(b"any:secret"))
    (b'secret', b'secret')
    """
    scheme, _, value = header.partition(b" ")
    if scheme.lower() == b"bearer":
        return value.strip()
    if scheme.lower() != b"basic":
        return b""
    try:
        return base64.b64decode(value.strip(), validate=True).partition(b":")[2]
    except (binascii.Error, ValueError):
        return b""


def is_json(content_type: str) -> bool:
    """Return whether a Content-Type header declares JSON.

    >>> is_json("application/json; charset=utf-8"), is_json("text/plain"), is_json("")
    (True, False, False)
    """
    return content_type.partition(";")[0].strip().lower() == "application/json"

"""HTML pages in a single file, which contains its style, its script and its data.

A page loads nothing. Texts of rows are embedded as JSON and become text nodes, never markup. The
content security policy of a page permits only its own script and style, by their hashes.
"""

from __future__ import annotations

import base64
import hashlib
import zlib
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

import msgspec

from rag_rewards.errors import UsageError
from rag_rewards.files.output import write_whole

_ASSETS = Path(__file__).parent / "assets"


def html_page(
    title: str, scripts: Sequence[str], data: Any, packed: Mapping[str, Any] | None = None
) -> str:
    """Return a page with scripts of `assets/`.

    `data` is embedded as JSON. The values of `packed` are compressed; the script unpacks them by
    name when it needs them.
    """
    code = "\n".join((_ASSETS / name).read_text("utf-8") for name in ("view.js", *scripts))
    style = (_ASSETS / "page.css").read_text("utf-8")
    policy = (
        "default-src 'none'; img-src data:; base-uri 'none'; form-action 'none'; "
        f"script-src '{_hash(code)}'; style-src '{_hash(style)}'"
    )
    blocks = [
        f'<script type="text/plain" id="{escape(name)}">{pack_json(value)}</script>'
        for name, value in (packed or {}).items()
    ]
    return "\n".join(
        [
            "<!doctype html>",
            '<html lang="en">',
            "<head>",
            '<meta charset="utf-8">',
            f'<meta http-equiv="Content-Security-Policy" content="{policy}">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            '<meta name="referrer" content="no-referrer">',
            f"<title>{escape(title)}</title>",
            '<link rel="icon" href="data:,">',
            f"<style>{style}</style>",
            "</head>",
            "<body>",
            '<main id="page"><noscript>This page requires JavaScript.</noscript></main>',
            f'<script type="application/json" id="data">{inline_json(data)}</script>',
            *blocks,
            f"<script>{code}</script>",
            "</body>",
            "</html>",
            "",
        ]
    )


def inline_json(data: Any) -> str:
    """Return JSON for a script element. Every < is written as \\u003c, so no text can end it.

    >>> inline_json({"text": "</script><script>alert(1)"})
    '{"text":"\\\\u003c/script>\\\\u003cscript>alert(1)"}'
    """
    text = msgspec.json.encode(data).decode()
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


def pack_json(data: Any) -> str:
    """Return compressed JSON in base64."""
    return base64.b64encode(zlib.compress(msgspec.json.encode(data), 9)).decode()


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def write_page(path: str, text: str) -> None:
    """Write a page or a picture. The file gets its name when it is complete."""
    if path.endswith(".parquet"):
        raise UsageError(f"{path}: a page is written as .html, a picture as .svg")
    write_whole(path, text.encode("utf-8", "replace"))

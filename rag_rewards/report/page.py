"""Pages that are one file: styles, scripts and data inside, nothing loaded, no markup from rows.

What a model wrote reaches a page as JSON or as compressed JSON, and the document as text nodes
alone. A policy in the head lets run the page's own script, by its hash, and nothing else.
"""

from __future__ import annotations

import base64
import hashlib
import zlib
from collections.abc import Mapping
from html import escape
from pathlib import Path
from typing import Any

import msgspec

_HERE = Path(__file__).parent / "assets"


def page(title: str, script: str, data: Any, packed: Mapping[str, Any] | None = None) -> str:
    """A whole page. `data` is there at once, each of `packed` when the script unpacks it."""
    code = "\n".join((_HERE / name).read_text("utf-8") for name in ("view.js", script))
    style = (_HERE / "page.css").read_text("utf-8")
    policy = (
        "default-src 'none'; img-src data:; base-uri 'none'; form-action 'none'; "
        f"script-src '{_hash(code)}'; style-src '{_hash(style)}'"
    )
    blocks = [
        f'<script type="text/plain" id="{escape(name)}">{pack(value)}</script>'
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
            '<main id="page"><noscript>This page is drawn by its own script.</noscript></main>',
            f'<script type="application/json" id="data">{inline(data)}</script>',
            *blocks,
            f"<script>{code}</script>",
            "</body>",
            "</html>",
            "",
        ]
    )


def inline(data: Any) -> str:
    """JSON that no text in it can end: every < is written as \\u003c.

    >>> inline({"said": "</script><script>alert(1)"})
    '{"said":"\\\\u003c/script>\\\\u003cscript>alert(1)"}'
    """
    text = msgspec.json.encode(data).decode()
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


def pack(data: Any) -> str:
    """JSON, compressed, in base64: letters that mean nothing to a browser."""
    return base64.b64encode(zlib.compress(msgspec.json.encode(data), 9)).decode()


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()

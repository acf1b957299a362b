"""The digest of a file."""

from __future__ import annotations

import hashlib
from pathlib import Path

from rag_rewards.files.storage import open_file


def sha256(path: str | Path) -> str:
    """Return the SHA-256 digest of a file in hexadecimal.

    >>> import tempfile
    >>> with tempfile.NamedTemporaryFile() as file: sha256(file.name)[:8]
    'e3b0c442'
    """
    digest = hashlib.sha256()
    with open_file(str(path)) as handle:
        while block := handle.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()

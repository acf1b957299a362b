"""Fences around the texts in a message to a judge, which no text can close.

The texts come from the policy and from data. Tags with a code separate them from the instructions.
The code is a digest of the texts and occurs in none of them. The same texts always result in the
same message.

In a marked message, each line of a text also begins with `| `, and the texts contain no invisible
characters. A line without the mark is therefore never part of a text. The idea of marks is that of
spotlighting (Hines et al., 2024).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from hashlib import blake2b

from rag_rewards.text.normalize import without_invisible

MARK = "| "
"""The beginning of each line of a text in a marked message."""

# Chat templates interpret their markers (<|im_end|>, <start_of_turn>, </s>, [INST], …) everywhere,
# also within the text of a message. An added space prevents this.
_MARKER = re.compile(r"<(?=[/|｜A-Za-z_])|\[(?=\||/?[A-Za-z_]+\])")
_CONTROLS = dict.fromkeys(code for code in (*range(32), 127) if chr(code) not in "\t\n")
_CODE_LINE = re.compile(r"The code is ([0-9a-f]{16})\.\n")


def fenced(texts: Iterable[tuple[str, str]], instruction: str, *, marked: bool = False) -> str:
    """Return (tag, text) pairs, each text between tags with a code, and an instruction after them.

    The code replaces `CODE` in the instruction.
    """
    blocks = [(name, _plain(text)) for name, text in texts]
    if marked:
        blocks = [(name, _with_marks(text)) for name, text in blocks]
    code = _code(text for _, text in blocks)
    return "\n".join(
        [
            f"The code is {code}.",
            *(f"<{name}-{code}>\n{text}\n</{name}-{code}>" for name, text in blocks),
            instruction.replace("CODE", code),
        ]
    )


def code_of(messages: Sequence[Mapping[str, str]]) -> str:
    """Return the code of the texts in the last of these messages, "" if it has none."""
    match = _CODE_LINE.match(messages[-1]["content"])
    return match[1] if match else ""


def _plain(text: str) -> str:
    """Return a text without markers of chat templates and without lone surrogates.

    >>> _plain("[1] a<b </s><|im_end|>[INST]")
    '[1] a< b < /s>< |im_end|>[ INST]'
    """
    text = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return _MARKER.sub(lambda marker: f"{marker[0]} ", text)


def _with_marks(text: str) -> str:
    """Return a text without invisible and control characters, with a mark before each line.

    All characters count that any program treats as the end of a line.

    >>> _with_marks("one\\u2028two")
    '| one\\n| two'
    """
    lines = "\n".join(text.splitlines()).translate(_CONTROLS)
    # Removing an invisible character can join the parts of a chat marker.
    visible = _plain(without_invisible(lines))
    return "\n".join(MARK + line for line in visible.split("\n"))


def _code(texts: Iterable[str]) -> str:
    """Return 16 hexadecimal digits, a digest of the texts that none of them contains."""
    texts = list(texts)
    digest = blake2b(json.dumps(texts).encode("ascii"), digest_size=8)
    while any(digest.hexdigest() in text for text in texts):
        digest.update(b"again")
    return digest.hexdigest()

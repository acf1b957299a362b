"""The data card of a prepared file: its content, its source, and how to reproduce it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rag_rewards.datasets.catalog import DataSet
from rag_rewards.errors import cannot_resume
from rag_rewards.preparation.result import PrepareResult

_NO_DOCUMENTS = "none, because the rows contain no documents"
_BODY = """\
# {title}, prepared for {recipe}

{written:,} questions of {title} ({source}), license: {licence}. The license of the data also
applies to this file.

Supporting documents: {supporting}.

{dropped}
The prompt, with its placeholders:

{prompt}
"""


def data_card(data_set: DataSet, facts: dict[str, Any], prompt: str) -> str:
    """Return a data card: the facts as YAML, followed by Markdown."""
    import yaml

    head = yaml.safe_dump(facts, sort_keys=False, allow_unicode=True, width=100)
    counts = facts["counts"]
    dropped = "".join(
        f"- {reason}: {count:,} rows omitted\n" for reason, count in counts["dropped"].items()
    )
    body = _BODY.format(
        title=data_set.title,
        recipe=facts["recipe"],
        written=counts["written"],
        source=data_set.source,
        licence=data_set.licence,
        supporting=data_set.supporting if any(counts["rows by documents"]) else _NO_DOCUMENTS,
        dropped=dropped + "\n" if dropped else "No row was omitted.\n",
        prompt="\n".join(f"    {line}".rstrip() for line in prompt.splitlines()),
    )
    return f"---\n{head}---\n\n{body}"


def read_card(path: str) -> dict[str, Any] | None:
    """Return the facts of a data card, or None if there is no card.

    Raises UsageError for another file of this name.
    """
    import yaml

    try:
        _, head, _ = Path(path).read_text("utf-8").split("---\n", 2)
        facts: dict[str, Any] = yaml.safe_load(head)
        PrepareResult.from_counts(facts["counts"])
        return facts if facts["signature"] and facts["output"]["sha256"] else None
    except OSError:
        return None
    except (ValueError, KeyError, TypeError, yaml.YAMLError):
        raise cannot_resume(path, "it is not a data card of this command") from None

"""Retrieved documents and chat messages, as rows contain them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec


class Document(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A retrieved document, in prompt order.

    `supports` contains one boolean per gold answer (Trust-Align's `answers_found`).
    """

    text: str
    id: str | int | None = None
    title: str | None = None
    supports: tuple[bool | int, ...] | None = None

    @property
    def premise(self) -> str:
        """The document as the premise of an entailment: "Title: t\\ntext", or the text alone."""
        return f"Title: {self.title}\n{self.text}" if self.title else self.text


if TYPE_CHECKING:
    DocumentOrText = Document
else:
    # A row can contain the text of a document in place of an object. `Rollout` replaces it.
    DocumentOrText = Document | str


class Result(Document, frozen=True, kw_only=True, gc=False):
    """A document that a search returned, with its address where the environment knows it."""

    url: str | None = None


class Message(msgspec.Struct, frozen=True, omit_defaults=True):
    """A chat message. The content is text, or a list of parts of which only text is read.

    `token_span` is the half-open range of an assistant message in `response_token_ids`. The other
    fields have the meaning of the OpenAI chat format. A model can write anything into them, so they
    have no type and are checked where they are read.
    """

    role: str
    content: str | list[dict[str, Any]] | None = None
    tool_calls: Any = None
    tool_call_id: Any = None
    name: Any = None
    reasoning_content: Any = None
    token_span: tuple[int, int] | None = None

    @property
    def text(self) -> str:
        if isinstance(self.content, list):
            parts = (part.get("text") for part in self.content if part.get("type") == "text")
            return "".join(part for part in parts if isinstance(part, str))
        return self.content or ""

"""The token ids of prompts: with all documents, without one of them, and masked as in LEAR.

Each text of a batch is tokenized once. Response ids are appended to a context, so that no token
spans the boundary. When a document is left out, the other documents keep their labels, and the
tokens before it do not change.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from rag_rewards.errors import DataError
from rag_rewards.evidence.protocols import TokenIds, Tokenizer
from rag_rewards.prompts import GROUNDED, Prompt
from rag_rewards.rollout import Rollout
from rag_rewards.text.response import strip_end_of_sequence
from rag_rewards.text.sections import Tags

_LEAR = Tags(("reason", "extract", "answer"))

Text = tuple[str, bool]
"""A text, and whether the tokenizer adds special tokens to it."""


@dataclass(frozen=True)
class Contexts:
    """Contexts of a batch of rollouts as token ids, for one tokenizer.

    tokenizer   the tokenizer of the policy
    prompt      prompt of rollouts without one, and form of the documents in those with one
    max_length  maximum number of tokens of context and response; None for no limit
    truncate    drop non-supporting documents, last first, when a rollout exceeds `max_length`;
                without it, such a rollout raises DataError
    template    further arguments of the chat template, such as {"enable_thinking": False}
    response_limit  the parameter of a trainer that limits the length of a response, for errors

    An object keeps the tokens of the texts of its batch, which the rollouts of a group share.
    """

    tokenizer: Tokenizer
    prompt: Prompt = GROUNDED
    max_length: int | None = None
    truncate: bool = False
    template: Mapping[str, Any] = field(default_factory=dict)
    response_limit: str = ""
    _ids: dict[Text, TokenIds] = field(default_factory=dict, init=False, repr=False, compare=False)
    _drops: dict[Any, tuple[str, ...]] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def leave_one_out(
        self, rollout: Rollout, labels: Sequence[str], response: int = 0
    ) -> tuple[TokenIds, dict[str, TokenIds]]:
        """Return the full context, and the context without each of these documents, by label.

        `response` is the number of tokens of the longest response of the group, so that truncation
        drops the same documents for all members. Raises DataError for an unknown label, for a
        prompt that does not contain a document, and for a context that is too long.
        """
        for label in labels:
            if label not in rollout.labels:
                raise DataError(
                    f"document {label} cannot be left out: the row has no such document",
                    "documents",
                )
        if labels and rollout.turns is None and rollout.has_results_as_documents:
            raise DataError(
                "results inside a transcript or chat messages cannot be left out of the prompt: "
                "write the field turns",
                "response",
            )
        full = self.context(rollout)
        self._check_tokens(rollout, full)
        dropped = self._dropped(rollout, response, lambda labels: self._text(rollout, labels))
        if dropped:
            full = self.context(rollout, dropped)
        return full, {label: self.context(rollout, (*dropped, label)) for label in labels}

    def _dropped(
        self, rollout: Rollout, room: int, render: Callable[[tuple[str, ...]], Text]
    ) -> tuple[str, ...]:
        """Return the documents to drop so that a context and `room` further tokens fit."""
        whole = render(())
        if self.max_length is None or len(self._encode(whole)) + room <= self.max_length:
            return ()
        supporting = rollout.supporting_labels if rollout.supporting is not None else ()
        spare = [label for label in rollout.labels if label not in supporting]
        key = (whole, room, *spare)
        if key not in self._drops:
            self._drops[key] = self._search(self.max_length, spare, room, render)
        return self._drops[key]

    def _search(
        self, most: int, spare: list[str], room: int, render: Callable[[tuple[str, ...]], Text]
    ) -> tuple[str, ...]:
        """Drop documents, last first, until at most `most` tokens are left.

        Only the tokens of the last text are kept, because there can be one text per document.
        """
        dropped: tuple[str, ...] = ()
        text = render(dropped)
        ids = self._encode(text)
        while (n := len(ids)) + room > most:
            if not self.truncate or not spare:
                remedy = "set the option `truncate`, which drops non-supporting documents"
                if self.response_limit:
                    remedy = f"decrease {self.response_limit}, or {remedy}"
                if self.truncate:
                    remedy = "no further document can be dropped"
                raise DataError(
                    f"the prompt has {n:,} tokens and the response {room:,}, more than the model's "
                    f"maximum of {most:,}; {remedy}",
                    "documents",
                )
            dropped = (*dropped, spare.pop())
            text = render(dropped)
            ids = self._tokenize(text)
        self._ids[text] = ids
        return dropped

    def context(self, rollout: Rollout, without: Collection[str] = ()) -> TokenIds:
        """Return the prompt without these documents, up to the beginning of the response."""
        return self._encode(self._text(rollout, without))

    def _text(self, rollout: Rollout, without: Collection[str] = ()) -> Text:
        text, special = self._render(rollout, without)
        prefix = rollout.response_prefix or ""
        if prefix and not text.rstrip().endswith(prefix.strip()):
            text += prefix
        return self._beginning(text, special, rollout)

    def masked(self, rollout: Rollout, part: str, tags: Tags = _LEAR, room: int = 0) -> TokenIds:
        """Return LEAR's context for one of its answers, up to the opening <answer>.

        part  "rationale" (question, passages and reason), "evidence" (question and extract), or
              "full" (all of them)
        tags  names of the sections of a response
        room  number of tokens that follow the context

        Masked texts are omitted. Raises DataError without documents. Source: LEAR, Eq. 4.
        """
        if not rollout.documents:
            raise DataError("missing; they are required for the masked contexts", "documents")
        if rollout.prompt_token_ids is not None:
            self._check_tokens(rollout, self.context(rollout))
        content = rollout.parsed.cut(tags).content
        sections = {"rationale": ["reason"], "evidence": ["extract"], "full": ["reason", "extract"]}
        blocks = [f"<{name}>{content.get(name, '')}</{name}>\n" for name in sections[part]]

        def render(dropped: tuple[str, ...]) -> Text:
            without = rollout.labels if part == "evidence" else dropped
            text, special = self._render(rollout, without)
            return self._beginning(text + "".join(blocks) + "<answer>", special, rollout)

        return self._encode(render(self._dropped(rollout, room, render)))

    def response(self, rollout: Rollout) -> TokenIds:
        """Return the token ids of the response: those of the row, or those of its text.

        The response of a rollout with several turns is its last turn. Raises DataError for a
        response of several messages without token ids.
        """
        if rollout.has_turns and rollout.turns is not None:
            last = rollout.turns[-1]
            if last.token_ids is not None:
                return last.token_ids
            if last.token_span is None or rollout.response_token_ids is None:
                return self.tokens(strip_end_of_sequence(last.text))
            return rollout.response_token_ids[slice(*last.token_span)]
        if rollout.response_token_ids is not None:
            return rollout.response_token_ids
        if not isinstance(rollout.response, str):
            messages = [message for message in rollout.response if message.role == "assistant"]
            if len(messages) != 1 or len(rollout.response) != 1:
                raise DataError(
                    "missing; a response of several messages requires its token ids",
                    "response_token_ids",
                )
            return self.tokens(messages[0].text)
        return self.tokens(strip_end_of_sequence(rollout.response))

    def tokens(self, text: str) -> TokenIds:
        """Return the token ids of a text that continues a context."""
        return self._encode((text, False))

    def answer_span(self, rollout: Rollout) -> tuple[int, int] | None:
        """Return the token range after the last </think>, None without a complete <think>."""
        whole = rollout.parsed.text
        if "<think>" not in whole or "</think>" not in whole:
            return None
        ids = self.response(rollout)
        ends = self.tokenizer.decode(ids).count("</think>")
        # Bisection for the shortest prefix of the tokens that contains every </think>.
        low, high = 0, len(ids)
        while low < high:
            middle = (low + high) // 2
            if self.tokenizer.decode(ids[:middle]).count("</think>") >= ends:
                high = middle
            else:
                low = middle + 1
        return low, len(ids)

    # --- rendering -----------------------------------------------------------------------------

    def _render(self, rollout: Rollout, without: Collection[str]) -> tuple[str, bool]:
        """Return the text of the prompt, and whether the tokenizer adds special tokens to it."""
        prompt = rollout.prompt
        if prompt is None:
            return self.chat(self.messages(rollout, without))
        contents = [prompt] if isinstance(prompt, str) else [m.get("content") for m in prompt]
        texts = [content for content in contents if isinstance(content, str)]
        rest = iter(_without(self.prompt, rollout, texts, without))
        if isinstance(prompt, str):
            return next(rest), True
        return self.chat(
            [
                {**message, "content": next(rest)} if isinstance(content, str) else message
                for message, content in zip(prompt, contents, strict=True)
            ]
        )

    def messages(self, rollout: Rollout, without: Collection[str] = ()) -> list[dict[str, str]]:
        """Return the chat for a rollout without a prompt. Raises DataError without a question."""
        if rollout.question is None:
            raise DataError("missing; the prompt contains it, or add `prompt`", "question")
        return self.prompt.messages(rollout, without)

    def chat(self, messages: Sequence[Mapping[str, Any]]) -> tuple[str, bool]:
        """Return the text of a chat, and whether the tokenizer adds special tokens to it.

        Raises DataError if the chat template rejects the messages.
        """
        if getattr(self.tokenizer, "chat_template", None) is None:
            # The prompt of a base model consists of the texts of the messages.
            texts = [str(message.get("content") or "") for message in messages]
            return "\n\n".join(texts) + "\n\n", True
        try:
            text = self.tokenizer.apply_chat_template(
                [dict(message) for message in messages],
                tokenize=False,
                add_generation_prompt=True,
                **self.template,
            )
        except Exception as error:  # a template is code of the model, and can raise anything
            raise DataError(f"the chat template rejects it: {error}", "prompt") from error
        return str(text), False

    def encode(self, text: str, special: bool, rollout: Rollout) -> TokenIds:
        """Return the token ids of a text that begins a context, with special tokens if wanted."""
        return self._encode(self._beginning(text, special, rollout))

    def _beginning(self, text: str, special: bool, rollout: Rollout) -> Text:
        """Return a text that begins a context, without special tokens that it has already."""
        bos = getattr(self.tokenizer, "bos_token", None)
        special = special and not (bos and text.startswith(bos))
        row_ids = rollout.prompt_token_ids
        if special and row_ids and row_ids[0] != getattr(self.tokenizer, "bos_token_id", None):
            special = False  # the trainer added no special tokens
        return text, special

    def _encode(self, text: Text) -> TokenIds:
        """Return the token ids of a text, which are kept for the batch."""
        if text not in self._ids:
            self._ids[text] = self._tokenize(text)
        return self._ids[text]

    def _tokenize(self, text: Text) -> TokenIds:
        return tuple(self.tokenizer.encode(text[0], add_special_tokens=text[1]))

    def _check_tokens(self, rollout: Rollout, full: TokenIds) -> None:
        """Raise DataError if the rendered prompt differs from the row's `prompt_token_ids`."""
        row_ids = rollout.prompt_token_ids
        if row_ids is None or row_ids == full:
            return
        start = next(
            (i for i, (a, b) in enumerate(zip(row_ids, full, strict=False)) if a != b),
            min(len(row_ids), len(full)),
        )
        in_row, rendered = (
            self.tokenizer.decode(ids[start : start + 8]) for ids in (row_ids, full)
        )
        raise DataError(
            f"the rendered prompt differs from token {start} on: it has {rendered!r}, the row has "
            f"{in_row!r}; add the row's own `prompt`, or use the Prompt that created it",
            "prompt_token_ids",
        )


DOCUMENT_FORMS = (
    Prompt(""),
    Prompt("", document="[{label}] {text}"),
    Prompt("", untitled="{text}"),
)
"""Prompts with the forms of the documents in the prompts of all recipes of this package."""


def _recognized(prompt: Prompt, rollout: Rollout, text: str) -> Prompt:
    """Return the prompt whose form the documents of a rollout have in a text.

    The candidates are `prompt` and the forms of all recipes. The documents of another recipe must
    occur as this recipe renders them: all together, with its separator, and nothing around them. If
    several forms are possible, the longest one is returned, since a form can be a part of a longer
    one. If none is possible, the result is `prompt`.
    """
    best, most = prompt, 0
    for candidate in (prompt, *DOCUMENT_FORMS):
        blocks = list(_blocks_of(candidate, rollout).values())
        joined = candidate.separator.join(blocks)
        if len(joined) <= most or any(text.count(block) != 1 for block in blocks):
            continue
        if candidate is prompt or _is_rendered(joined, text, several=len(blocks) > 1):
            best, most = candidate, len(joined)
    return best


def _is_rendered(joined: str, text: str, *, several: bool) -> bool:
    """Return whether documents are in a text with nothing of another form around them.

    A prompt can contain the label of the first of several documents in the middle of a line.
    """
    start = text.find(joined)
    if start < 0:
        return False
    before, after = text[:start][-1:], text[start + len(joined) :][:1]
    in_a_line = several and joined.startswith("[") and before == " "
    return (before in _ENDS or in_a_line) and after in _ENDS and (several or joined[0] == "[")


_ENDS = ("", "\n", "\0")
"""What can be before and after documents: nothing, or the end of a line or of a message."""


def _blocks_of(prompt: Prompt, rollout: Rollout) -> dict[str, str]:
    """Return the documents of a rollout by label, in the form of a prompt."""
    pairs = zip(rollout.labels, rollout.documents or (), strict=True)
    return {label: prompt.block(label, document) for label, document in pairs}


def _without(
    prompt: Prompt, rollout: Rollout, texts: Sequence[str], without: Collection[str]
) -> list[str]:
    """Return the texts of a prompt that was rendered elsewhere, without these documents.

    Raises DataError unless each of these documents is in the texts exactly once.
    """
    rest = list(texts)
    if not without:
        return rest
    prompt = _recognized(prompt, rollout, "\0".join(texts))
    blocks = _blocks_of(prompt, rollout)
    for label in filter(without.__contains__, blocks):
        block = blocks[label]
        counts = [text.count(block) for text in rest]
        if sum(counts) != 1:
            start = msgspec.json.encode(block[:60]).decode()
            fault = f"is {sum(counts)} times in it" if any(counts) else "is not in it"
            raise DataError(
                f"document {label} cannot be left out: {start}… {fault}; describe the documents in "
                "the prompt with a Prompt, or set the option `document_form`",
                "prompt",
            )
        at = counts.index(1)
        rest[at] = _cut(rest[at], block, prompt.separator, tuple(blocks.values()))
    return rest


def _cut(text: str, block: str, separator: str, others: tuple[str, ...]) -> str:
    """Return a text without a block, and without the separator to one other document.

    A separator to other text, such as the empty line before the question, stays.
    """
    start = text.index(block)
    end = start + len(block)
    after, before = end + len(separator), start - len(separator)
    if text.startswith(separator, end) and text.startswith(others, after):
        return text[:start] + text[after:]
    if text.endswith(separator, 0, start) and text.endswith(others, 0, max(before, 0)):
        return text[:before] + text[end:]
    return text[:start] + text[end:]

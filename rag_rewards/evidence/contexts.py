"""What a policy is shown: a prompt with its documents, without one of them, and LEAR's masked ones.

A prompt is rendered and tokenised once per context; response ids are appended and never
tokenised again across the boundary. A document that is left out takes nothing with it: the others
keep their labels, and what stands before it stays the same tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
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


@dataclass(frozen=True)
class Contexts:
    """Contexts of rollouts as token ids, for one tokenizer.

    `max_length` is what context and response may have together. A rollout beyond it is a
    DataError, or, with `truncate`, loses documents that do not support the answer, last first.
    `template` holds further arguments of the chat template (`enable_thinking=False`).
    """

    tokenizer: Tokenizer
    prompt: Prompt = GROUNDED
    max_length: int | None = None
    truncate: bool = False
    template: Mapping[str, Any] = field(default_factory=dict)

    def leave_one_out(
        self, rollout: Rollout, labels: Sequence[str], response: int = 0
    ) -> tuple[TokenIds, dict[str, TokenIds]]:
        """The full context, and the context without each of these documents.

        `response` is the room that responses need, that of the longest of a group, so that
        truncation leaves its members the same documents.
        """
        for label in labels:
            if label not in rollout.labels:
                raise DataError(
                    f"document {label} cannot be left out: the row has no such document",
                    "documents",
                )
        full = self.context(rollout)
        self._compare(rollout, full)
        dropped = self._dropped(rollout, response, lambda gone: self.context(rollout, gone))
        if dropped:
            full = self.context(rollout, dropped)
        return full, {label: self.context(rollout, (*dropped, label)) for label in labels}

    def _dropped(
        self, rollout: Rollout, room: int, render: Callable[[tuple[str, ...]], TokenIds]
    ) -> tuple[str, ...]:
        """Documents to leave out so that a context fits beside `room` further tokens."""
        supporting = rollout.supporting_labels if rollout.supporting is not None else ()
        spare = [label for label in rollout.labels if label not in supporting]
        dropped: tuple[str, ...] = ()
        while self.max_length is not None and (n := len(render(dropped))) + room > self.max_length:
            if not self.truncate or not spare:
                way = "the option `truncate` drops non-supporting documents"
                why = "no further document can be dropped" if self.truncate else way
                raise DataError(
                    f"{n:,} tokens of prompt and {room:,} of response are more than the model's "
                    f"{self.max_length:,}; {why}",
                    "documents",
                )
            dropped = (*dropped, spare.pop())
        return dropped

    def context(self, rollout: Rollout, without: Collection[str] = ()) -> TokenIds:
        """The prompt without these documents, up to where the response begins."""
        text, special = self._rendered(rollout, without)
        prefix = rollout.response_prefix or ""
        if prefix and not text.rstrip().endswith(prefix.strip()):
            text += prefix
        return self._encode(text, special, rollout)

    def masked(self, rollout: Rollout, part: str, tags: Tags = _LEAR, room: int = 0) -> TokenIds:
        """LEAR's context for one of its answers, up to the opened <answer>.

        `rationale`: question, passages and reason. `evidence`: question and extract alone.
        `full`: everything. What is masked is not in it. `room` is what may follow, in tokens.
        Source: LEAR, section 3.1.
        """
        if not rollout.documents:
            raise DataError("missing; they are masked, or shown, by their text", "documents")
        if rollout.prompt_token_ids is not None:
            self._compare(rollout, self.context(rollout))
        content = rollout.parsed.cut(tags).content
        sections = {"rationale": ["reason"], "evidence": ["extract"], "full": ["reason", "extract"]}
        said = [f"<{name}>{content.get(name, '')}</{name}>\n" for name in sections[part]]

        def render(gone: tuple[str, ...]) -> TokenIds:
            without = rollout.labels if part == "evidence" else gone
            text, special = self._rendered(rollout, without)
            return self._encode(text + "".join(said) + "<answer>", special, rollout)

        return render(self._dropped(rollout, room, render))

    def response(self, rollout: Rollout) -> TokenIds:
        """The response's own token ids: the trainer's, else those of its text."""
        if rollout.response_token_ids is not None:
            return rollout.response_token_ids
        if not isinstance(rollout.response, str):
            said = [message for message in rollout.response if message.role == "assistant"]
            if len(said) != 1 or len(rollout.response) != 1:
                raise DataError(
                    "missing; a response of several messages is scored by its token ids",
                    "response_token_ids",
                )
            return self.tokens(said[0].text)
        return self.tokens(strip_end_of_sequence(rollout.response))

    def tokens(self, text: str) -> TokenIds:
        """Text that continues a context."""
        return tuple(self.tokenizer.encode(text, add_special_tokens=False))

    def answer_span(self, rollout: Rollout) -> tuple[int, int] | None:
        """The token range behind the last </think>; None where nothing was thought, or no end."""
        whole = rollout.parsed.text
        if "<think>" not in whole or "</think>" not in whole:
            return None
        ids = self.response(rollout)
        ends = self.tokenizer.decode(ids).count("</think>")
        # The shortest beginning of the response's own tokens that holds every </think>.
        low, high = 0, len(ids)
        while low < high:
            middle = (low + high) // 2
            if self.tokenizer.decode(ids[:middle]).count("</think>") >= ends:
                high = middle
            else:
                low = middle + 1
        return low, len(ids)

    # --- rendering -----------------------------------------------------------------------------

    def _rendered(self, rollout: Rollout, without: Collection[str]) -> tuple[str, bool]:
        """The prompt's text, and whether the tokenizer adds its special tokens to it."""
        given = rollout.prompt
        if given is None:
            if rollout.question is None:
                raise DataError("missing; the prompt is made from it, or give `prompt`", "question")
            return self._chat(self.prompt.messages(rollout, without))
        removed = _Removal(self.prompt, rollout, without)
        if isinstance(given, str):
            text = removed.of(given)
            removed.check()
            return text, True
        messages = [
            {**message, "content": removed.of(message["content"])}
            if isinstance(message.get("content"), str)
            else message
            for message in given
        ]
        removed.check()
        return self._chat(messages)

    def _chat(self, messages: Sequence[Mapping[str, Any]]) -> tuple[str, bool]:
        if getattr(self.tokenizer, "chat_template", None) is None:
            # A base model: the messages' text, one after the other.
            said = [str(message.get("content") or "") for message in messages]
            return "\n\n".join(said) + "\n\n", True
        try:
            text = self.tokenizer.apply_chat_template(
                [dict(message) for message in messages],
                tokenize=False,
                add_generation_prompt=True,
                **self.template,
            )
        except Exception as error:  # a template is code of the model's makers
            raise DataError(f"the chat template refuses it: {error}", "prompt") from error
        return str(text), False

    def _encode(self, text: str, special: bool, rollout: Rollout) -> TokenIds:
        begins = getattr(self.tokenizer, "bos_token", None)
        special = special and not (begins and text.startswith(begins))
        given = rollout.prompt_token_ids
        if special and given and given[0] != getattr(self.tokenizer, "bos_token_id", None):
            special = False  # the trainer tokenised it without
        return tuple(self.tokenizer.encode(text, add_special_tokens=special))

    def _compare(self, rollout: Rollout, full: TokenIds) -> None:
        """The rendered prompt must be the one the trainer's tokens came from."""
        given = rollout.prompt_token_ids
        if given is None or given == full:
            return
        at = next(
            (i for i, (a, b) in enumerate(zip(given, full, strict=False)) if a != b),
            min(len(given), len(full)),
        )
        theirs, ours = (self.tokenizer.decode(ids[at : at + 8]) for ids in (given, full))
        raise DataError(
            f"the rendered prompt has other tokens from token {at} on: {ours!r} here, {theirs!r} "
            "in the row; give the row's own `prompt`, or the Prompt that made it",
            "prompt_token_ids",
        )


@dataclass
class _Removal:
    """Documents taken out of a prompt that somebody else rendered."""

    prompt: Prompt
    rollout: Rollout
    without: Collection[str]
    found: dict[str, int] = field(default_factory=dict)

    def of(self, text: str) -> str:
        """The text without the documents, each with one separator."""
        for label, block in self._blocks():
            count = text.count(block)
            self.found[label] = self.found.get(label, 0) + count
            if count == 1:
                text = self._cut(text, block)
        return text

    def _blocks(self) -> Iterator[tuple[str, str]]:
        pairs = zip(self.rollout.labels, self.rollout.documents or (), strict=True)
        return ((label, self.prompt.block(label, d)) for label, d in pairs if label in self.without)

    def _cut(self, text: str, block: str) -> str:
        separator = self.prompt.separator
        start = text.index(block)
        end = start + len(block)
        if text.startswith(separator, end):
            return text[:start] + text[end + len(separator) :]
        if text.endswith(separator, 0, start):
            return text[: start - len(separator)] + text[end:]
        return text[:start] + text[end:]

    def check(self) -> None:
        """DataError unless every document stood there exactly once."""
        for label, block in self._blocks():
            count = self.found.get(label, 0)
            if count == 1:
                continue
            shown = msgspec.json.encode(block[:60]).decode()
            how = "is not in it" if count == 0 else f"is {count} times in it"
            raise DataError(
                f"document {label} cannot be left out: {shown}… {how}; describe the documents in "
                "the prompt with a Prompt or the option `document_form`",
                "prompt",
            )

"""The token ids that precede each turn of a search agent, also with other results of a search.

The context before turn t contains the prompt, the earlier turns and the replies of the environment.
A row with the token ids of all turns and replies keeps them. Otherwise each turn and each reply is
tokenized by itself, and a chat is rendered by the chat template up to each turn. A context is
therefore the beginning of the next one, unless a chat template changes earlier messages.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate, chain, pairwise
from typing import Any, Protocol

import msgspec

from rag_rewards.errors import DataError
from rag_rewards.evidence.contexts import Contexts
from rag_rewards.evidence.protocols import TokenIds
from rag_rewards.rollout import Rollout
from rag_rewards.turns.dialects import Dialect
from rag_rewards.turns.trajectory import Trajectory
from rag_rewards.turns.turn import Document, Message

MOST_TOKENS = 2**25
"""Maximum total number of tokens of the contexts of a rollout, which bounds the memory."""


class TurnContexts(Protocol):
    """The contexts of the turns of a rollout."""

    @property
    def before(self) -> Sequence[TokenIds]:
        """The context before each turn."""
        ...

    def results(self, turn: int) -> str | None:
        """Return the results of a turn as the environment wrote them, None without results."""
        ...

    def after(self, turn: int, results: str) -> TokenIds:
        """Return the context after a turn whose results are replaced by others."""
        ...


def turn_contexts(contexts: Contexts, rollout: Rollout, run: Trajectory) -> TurnContexts:
    """Return the contexts of the turns of a rollout.

    Raises DataError for results without their text, for a prompt that cannot be rendered, and for
    contexts with more than `MOST_TOKENS` tokens in total.
    """
    is_chat = rollout.turns is None and not isinstance(rollout.response, str)
    if is_chat and not isinstance(rollout.prompt, str) and not _has_spans(rollout, run):
        return _ChatContexts.of(contexts, rollout, run)
    return token_contexts(contexts, rollout, run)


def token_contexts(contexts: Contexts, rollout: Rollout, run: Trajectory) -> TokenContexts:
    """Return the contexts of a rollout whose turns have token spans or texts of their own."""
    read = _of_spans if _has_spans(rollout, run) else _of_texts
    return read(contexts, rollout, run)


def _has_spans(rollout: Rollout, run: Trajectory) -> bool:
    """Return whether the token ids contain all turns and all replies of the environment.

    ms-swift gives the tokens of the policy alone, so that a turn begins where the one before ends.
    """
    spans = [turn.token_span for turn in run.turns]
    if rollout.response_token_ids is None or None in spans:
        return False
    pairs = zip(run.turns, pairwise(filter(None, spans)), strict=False)
    return all(before[1] < after[0] for turn, (before, after) in pairs if turn.observation)


# --- tokens ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class TokenContexts:
    """Contexts that consist of the tokens of the prompt, of each turn, and of each reply.

    prompt   the tokens before the first turn
    own      the tokens of each turn but the last one
    replies  the tokens of the reply to each of these turns
    texts    the replies as text, "" for none

    Raises DataError for contexts with more than `MOST_TOKENS` tokens in total.
    """

    contexts: Contexts
    run: Trajectory
    prompt: TokenIds
    own: Sequence[TokenIds]
    replies: Sequence[TokenIds]
    texts: Sequence[str]

    def __post_init__(self) -> None:
        sizes = map(len, chain.from_iterable(zip(self.own, self.replies, strict=True)))
        lengths = list(accumulate(sizes, initial=len(self.prompt)))
        _check_total(sum(lengths[::2]), len(lengths[::2]))

    @cached_property
    def before(self) -> Sequence[TokenIds]:
        steps = zip(self.own, self.replies, strict=True)
        return list(accumulate((turn + reply for turn, reply in steps), initial=self.prompt))

    def results(self, turn: int) -> str | None:
        span = self._span(turn)
        return None if span is None else self.texts[turn][slice(*span)]

    def after(self, turn: int, results: str) -> TokenIds:
        span = self._span(turn)
        if span is None:
            raise DataError(
                "the results cannot be separated from the other words of the environment: add the "
                "results as `observation`, or set gain.baseline=previous",
                f"turns[{turn}].observation",
            )
        text, (start, end) = self.texts[turn], span
        reply = self.replies[turn]
        if text[start:end] != results:
            reply = self.contexts.tokens(text[:start] + results + text[end:])
        return self.before[turn] + self.own[turn] + reply

    def without(self, document: Document, label: str) -> TokenIds:
        """Return the context before the last turn, without a document in any reply.

        Raises DataError if no reply contains it.
        """
        context, count = self.prompt, 0
        for turn, reply, text in zip(self.own, self.replies, self.texts, strict=True):
            rest = without_document(text, document)
            count += rest != text
            context += turn + (reply if rest == text else self.contexts.tokens(rest))
        if not count:
            raise DataError(
                f"document {label} cannot be left out: no observation contains its text; add the "
                "observations as the environment wrote them",
                "turns",
            )
        return context

    def _span(self, turn: int) -> tuple[int, int] | None:
        if self.run.turns[turn].results is None:
            return None
        observation = self.run.turns[turn].observation
        return results_span(self.texts[turn], observation, self.run.dialect)


def _of_spans(contexts: Contexts, rollout: Rollout, run: Trajectory) -> TokenContexts:
    ids = rollout.response_token_ids or ()
    spans = [turn.token_span or (0, 0) for turn in run.turns]
    replies = [ids[end:start] for (_, end), (start, _) in pairwise(spans)]
    texts = [contexts.tokenizer.decode(reply) if reply else "" for reply in replies]
    prompt = _prompt(contexts, rollout) + ids[: spans[0][0]]
    own = [ids[slice(*span)] for span in spans[:-1]]
    return TokenContexts(contexts, run, prompt, own, replies, texts)


def _of_texts(contexts: Contexts, rollout: Rollout, run: Trajectory) -> TokenContexts:
    own: list[TokenIds] = []
    replies: list[TokenIds] = []
    texts: list[str] = []
    for t, turn in enumerate(run.turns[:-1]):
        if turn.results is not None and turn.observation is None:
            raise DataError(
                "missing; add the results as the environment wrote them, or token ids",
                f"turns[{t}].observation",
            )
        texts.append(turn.observation or "")
        replies.append(contexts.tokens(texts[-1]))
        # The prefix of the response is a part of the prompt.
        text = turn.text.removeprefix(rollout.response_prefix or "") if t == 0 else turn.text
        given = turn.token_ids
        if turn.token_span is not None and rollout.response_token_ids is not None:
            given = rollout.response_token_ids[slice(*turn.token_span)]
        own.append(contexts.tokens(text) if given is None else given)
    return TokenContexts(contexts, run, _prompt(contexts, rollout), own, replies, texts)


def _prompt(contexts: Contexts, rollout: Rollout) -> TokenIds:
    """Return the tokens of the prompt, which does not contain the results of later searches."""
    if rollout.prompt_token_ids is not None:
        return rollout.prompt_token_ids
    if rollout.prompt is None and rollout.documents == rollout.retrieved:
        rollout = msgspec.structs.replace(rollout, documents=())
    return contexts.context(rollout)


def _check_total(total: int, turns: int) -> None:
    if total > MOST_TOKENS:
        raise DataError(
            f"the contexts of {turns:,} turns have {total:,} tokens in total, more than "
            f"{MOST_TOKENS:,}: limit the number of turns",
            "turns",
        )


_TOOL_RESPONSE = ("<tool_response>", "</tool_response>")


def results_span(text: str, observation: str | None, dialect: Dialect) -> tuple[int, int] | None:
    """Return the range of the results in a reply of the environment, None if there are none.

    This is the first results block of the dialect. Results of tools have no tags: they are the
    content of the tool responses of the chat template, or the observation inside of the reply.

    >>> from rag_rewards.turns.dialects import SEARCH_R1, TOOLS
    >>> results_span("\\n<information>a</information>", None, SEARCH_R1)
    (1, 29)
    >>> results_span("<|tool|>a<|end|>", "a", TOOLS), results_span("a", "a", TOOLS)
    ((8, 9), (0, 1))
    """
    opening, closing = dialect.block or _TOOL_RESPONSE
    start = text.find(opening)
    if start >= 0:
        end = text.find(closing, start) if dialect.block else text.rfind(closing)
        if dialect.block:
            return start, len(text) if end < 0 else end + len(closing)
        return start + len(opening), max(end, start + len(opening))
    if dialect.block or not observation or (start := text.find(observation)) < 0:
        return None
    return start, start + len(observation)


def leave_one_out_of_turns(
    contexts: Contexts, rollout: Rollout, labels: Sequence[str], response: int = 0
) -> tuple[TokenIds, dict[str, TokenIds]]:
    """Return the context before the last turn, and the same without each of these documents.

    A document is removed from each reply of the environment that contains it. The words of the
    policy and the numbers of the other documents do not change. `response` is the number of tokens
    of the longest last turn of the group. Raises DataError for an unknown label, for a document
    that no reply contains, and for a context that is too long.
    """
    turns = token_contexts(contexts, rollout, rollout.trajectory())
    full, most = turns.before[-1], contexts.max_length
    if most is not None and len(full) + response > most:
        raise DataError(
            f"the context of the last turn has {len(full):,} tokens and the turn {response:,}, "
            f"more than the model's maximum of {most:,}",
            f"turns[{len(turns.before) - 1}]",
        )
    by_label = dict(zip(rollout.labels, rollout.documents or (), strict=True))
    without: dict[str, TokenIds] = {}
    for label in labels:
        if label not in by_label:
            raise DataError(
                f"document {label} cannot be left out: the row has no such document", "documents"
            )
        without[label] = turns.without(by_label[label], label)
    return full, without


# --- removal of a document from a reply ----------------------------------------------------------

_HEAD = re.compile(r"(?:Doc \d+(?:\(Title: [^\n]*\))?|\(\d+\)|\[\d+\])[ \t]*\Z")
"""The number and the title before the text of a document, as dialects write them."""
Range = tuple[int, int]


def without_document(reply: str, document: Document) -> str:
    """Return a reply without each occurrence of a document, with its number and its title.

    >>> reply = '<information>Doc 1(Title: "A") x y\\nDoc 2(Title: "B") z\\n</information>'
    >>> without_document(reply, Document(text="x y"))
    '<information>Doc 2(Title: "B") z\\n</information>'
    >>> without_document('[{"text": "x"}, {"text": "z"}]', Document(text="x"))
    '[{"text": "z"}]'
    """
    if not document.text.strip():
        return reply
    escaped = msgspec.json.encode(document.text).decode()
    if escaped in reply:
        return _cut(reply, re.escape(escaped), _object)
    # The text of a document is not a part of a longer word or line.
    plain = rf"(?:(?<=[\s>)\]])|\A){re.escape(document.text.strip())}(?=[ \t]*(?:\n|<|\Z))"
    return _cut(reply, plain, _lines)


def _cut(reply: str, pattern: str, entry: Callable[[str, int, int, int], Range]) -> str:
    """Return a reply without the entries around each match of a pattern."""
    parts: list[str] = []
    at = 0
    for match in re.finditer(pattern, reply):
        if match.start() < at:
            continue
        start, end = entry(reply, match.start(), match.end(), at)
        parts.append(reply[at:start])
        at = end
    return "".join(parts) + reply[at:]


def _lines(reply: str, start: int, end: int, least: int) -> Range:
    """Return the range of the lines of a document, with its number and title."""
    line = max(reply.rfind("\n", least, start) + 1, least)
    head = _HEAD.search(reply, line, start)
    return head.start() if head else start, end + reply.startswith("\n", end)


def _object(reply: str, start: int, end: int, least: int) -> Range:
    """Return the range of the JSON object of a document, with one comma beside it."""
    opening, closing = reply.rfind("{", least, start), reply.find("}", end)
    if opening < 0 or closing < 0 or not _is_object(reply[opening : closing + 1]):
        return start, start
    if after := re.compile(r"\s*,\s*").match(reply, closing + 1):
        return opening, after.end()
    before = reply[least:opening].rstrip()
    return (least + len(before) - 1 if before.endswith(",") else opening), closing + 1


def _is_object(text: str) -> bool:
    try:
        return isinstance(msgspec.json.decode(text), dict)
    except (msgspec.DecodeError, RecursionError):
        return False


# --- chats -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _ChatContexts:
    """Contexts that the chat template renders.

    messages  the prompt and the response
    turns     position of the message of each turn
    texts     the rendered context before each turn
    """

    contexts: Contexts
    rollout: Rollout = field(repr=False)
    run: Trajectory
    messages: Sequence[dict[str, Any]]
    turns: Sequence[int]
    texts: list[str] = field(default_factory=list)
    before: list[TokenIds] = field(default_factory=list)

    @classmethod
    def of(cls, contexts: Contexts, rollout: Rollout, run: Trajectory) -> _ChatContexts:
        response = [message for message in rollout.response if isinstance(message, Message)]
        messages = _prompt_messages(contexts, rollout, response)
        start = len(messages)
        messages += [_as_chat(message) for message in response]
        turns = [start + i for i, m in enumerate(response) if m.role == "assistant"]
        chat = cls(contexts, rollout, run, messages, turns)
        total = 0
        for i in turns:
            text, ids = chat._continued(messages[:i], len(chat.texts) - 1)
            chat.texts.append(text)
            chat.before.append(ids)
            total += len(ids)
            _check_total(total, len(turns))
        return chat

    def results(self, turn: int) -> str | None:
        if self.run.turns[turn].results is None:
            return None
        contents = [message["content"] for _, message in self._replies(turn)]
        spans = [_span_of_message(content, self.run.dialect) for content in contents]
        pairs = zip(contents, spans, strict=True)
        return "\n".join(content[slice(*span)] for content, span in pairs if span)

    def after(self, turn: int, results: str) -> TokenIds:
        """Return the context after a turn; the first reply has the results, the others none."""
        if results == self.results(turn):
            return self.before[turn + 1]
        replaced = list(self.messages[: self.turns[turn + 1]])
        for i, message in self._replies(turn):
            content = message["content"]
            if (span := _span_of_message(content, self.run.dialect)) is None:
                continue
            content = content[: span[0]] + results + content[span[1] :]
            replaced[i] = {**message, "content": content}
            results = self.run.dialect.empty_block
        return self._continued(replaced, turn)[1]

    def _continued(self, messages: Sequence[dict[str, Any]], turn: int) -> tuple[str, TokenIds]:
        """Return messages as text and tokens, which continue the context of an earlier turn."""
        text, special = self.contexts.chat(messages)
        if turn >= 0 and text.startswith(self.texts[turn]):
            return text, self.before[turn] + self.contexts.tokens(text[len(self.texts[turn]) :])
        return text, self.contexts.encode(text, special, self.rollout)

    def _replies(self, turn: int) -> list[tuple[int, dict[str, Any]]]:
        between = range(self.turns[turn] + 1, self.turns[turn + 1])
        return [(i, self.messages[i]) for i in between]


def _prompt_messages(
    contexts: Contexts, rollout: Rollout, response: Sequence[Message]
) -> list[dict[str, Any]]:
    """Return the messages of the prompt, unless they are at the beginning of the response."""
    if isinstance(rollout.prompt, list):
        return list(rollout.prompt)
    return [] if response[0].role != "assistant" else list(contexts.messages(rollout))


def _as_chat(message: Message) -> dict[str, Any]:
    """Return a message for a chat template, which expects arguments of calls as objects."""
    fields = {name: getattr(message, name) for name in _CHAT_FIELDS if getattr(message, name)}
    calls = fields.get("tool_calls")
    if isinstance(calls, list):
        fields["tool_calls"] = [_with_object(call) for call in calls]
    return {"role": message.role, "content": message.text, **fields}


_CHAT_FIELDS = ("tool_calls", "tool_call_id", "name", "reasoning_content")


def _with_object(call: Any) -> Any:
    function = call.get("function") if isinstance(call, dict) else None
    if not isinstance(function, dict) or not isinstance(function.get("arguments"), str):
        return call
    arguments = function["arguments"]
    try:
        return {**call, "function": {**function, "arguments": msgspec.json.decode(arguments)}}
    except (msgspec.DecodeError, RecursionError):
        return call


def _span_of_message(content: str, dialect: Dialect) -> tuple[int, int] | None:
    return results_span(content, content, dialect) if dialect.block else (0, len(content))

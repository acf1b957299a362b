"""The text between a turn of a search agent and the answer whose likelihood is measured."""

from __future__ import annotations

from rag_rewards.errors import SettingError

TEMPLATES = {
    "igpo": "<think>\nNow there's enough information to answer\n</think>\n<answer>\n{answer}\n"
    "</answer>",
    "plain": "\n<answer> {answer} </answer>",
}
"""Templates by name. Sources: IGPO, released code at 745078b, scrl/llm_agent/generation.py;
IG-Search, released code at da299c4 (plain)."""

_ANSWER = "{answer}"


def before_answer(template: str) -> str:
    """Return the text before the answer, of a template by its name or of a text with {answer}.

    Raises SettingError for a text that does not contain {answer} exactly once.

    >>> before_answer("plain")
    '\\n<answer> '
    """
    text = TEMPLATES.get(template, template)
    if (count := text.count(_ANSWER)) != 1:
        names = ", ".join(TEMPLATES)
        raise SettingError(
            f"template: must be {names} or a text that contains {_ANSWER} once, found it {count} "
            "times"
        )
    return text[: text.index(_ANSWER)]

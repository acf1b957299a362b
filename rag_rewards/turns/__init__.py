"""Turns of search agents: the turns of a row, the dialects, and the reading of rollouts.

turn.py         `TurnRow`, a turn as a row contains it, and `Turn`, a turn that was read
dialects.py     tags and rules of the published agents
blocks.py       results blocks to documents
calls.py        tool calls to queries
own_words.py    queries, answers and forged results in the words of the policy
raw_text.py     a transcript that is one string
conversation.py a list of chat messages
trajectory.py   a rollout in any of these forms as a list of turns
masks.py        masks and spans of a trainer as turns

Every function runs in time linear in its input and raises no error on the text of a model.
"""

"""Turns of search agents: the turns of a row, the dialects, and the reading of rollouts.

turn.py         `TurnRow`, a turn as a row contains it, and `Turn`, a turn that was read
dialects.py     tags and rules of the published agents, and results blocks to documents
actions.py      queries, answer and faults of one turn
conversation.py a transcript that is one string, or a list of chat messages with tool calls
trajectory.py   a rollout in any of these forms as a list of turns, and their counts
order.py        whether the tags of a rollout have the order of its dialect

Every function runs in time linear in its input and raises no error on the text of a model.
"""

"""Recipes inside trainers: a file or a folder per trainer, which imports it when it is used.

reading.py          one rollout from what a trainer has: gold data, prompt, turns, tokens, masks
scoring.py          scores of a batch, unscored rollouts, credit, metrics, values of tokens
trainer_reward.py   the base of reward functions that get the columns of a batch (TRL, ms-swift)
row_checks.py       checks of a data set and of a judge before a training
engine_policy.py    the base of policies on a trainer's rollout engine
session_groups.py   groups of the samples of a prompt that run concurrently (verl, OpenRLHF)
"""

"""Recipes inside trainers. A module per trainer; each imports its trainer when it is used.

base.py is the base class of reward functions over batches, engine_policy.py that of policies on a
trainer's rollout engine. unscored_handler.py handles unscored rollouts while a trainer runs.
token_masks.py converts masks and spans of the policy's own tokens to turns.
`rag_rewards.rows.columns` converts the columns, labels and extra information of a trainer to
rollouts.
"""

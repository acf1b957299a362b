"""Recipes inside trainers. A module per trainer; each imports its trainer when it is used.

`rag_rewards.rows.columns` converts the columns, labels and extra information of a trainer to
rollouts. unscored.py decides what happens to a rollout without a score while a trainer runs.
"""

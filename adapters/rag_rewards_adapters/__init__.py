"""Recipes inside trainers. A module per trainer; each imports its trainer when it is used.

rag_rewards.labels reads what trainers call labels, columns and extra information; unscored.py says
what becomes of a rollout that has no score while a trainer runs.
"""

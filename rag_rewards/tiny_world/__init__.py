"""A small synthetic question-answering task, on which GRPO takes half a minute on one core.

It shows without a GPU what a policy learns from a reward.
"""

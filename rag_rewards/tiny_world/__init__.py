"""A small question-answering world in which GRPO takes half a minute on a processor core.

It shows that a reward teaches a policy what its paper claims, without a GPU.
"""

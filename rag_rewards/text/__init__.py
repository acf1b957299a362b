"""Parsing of responses: normalizers, sections, boxes, citations, statements and refusals.

Every function runs in time linear in its input and raises no error on the text of a model.
"""

"""Text to Response: normalisers, sections, boxes, citations, statements, refusals.

Everything here runs in time linear in its input and never raises on what a model wrote.
"""

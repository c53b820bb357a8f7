"""Reasoning between two marks at the start of an answer. Anywhere else the marks are text."""

from __future__ import annotations


def split_reasoning(text: str, after: str, marks: tuple[str, str]) -> tuple[str | None, str]:
    """Reasoning, if there is any, and the rest of the answer.

    Args:
        text: the answer.
        after: the end of its prompt, which may have opened the reasoning, or opened and closed it.
        marks: what opens reasoning and what closes it.
    """
    begin, end = marks
    body = text.lstrip()
    if after.rstrip().endswith(begin):
        body = text
    elif body.startswith(begin):
        body = body[len(begin) :]
    else:
        return None, text
    reasoning, closed, rest = body.partition(end)
    return reasoning.strip("\n"), rest.lstrip("\n") if closed else ""

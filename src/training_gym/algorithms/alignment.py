"""Where two tokenizations of one text cut it alike."""

from __future__ import annotations

from collections.abc import Sequence


def shared_spans(
    first_ends: Sequence[int | None], second_ends: Sequence[int | None]
) -> list[tuple[slice, slice]]:
    """Cut both tokenizations where both have a boundary; the tokens of each span, side by side.

    An end is the number of characters up to and including a token; None where the token ends
    within a character. Tokens without characters of their own belong to the span they follow.
    Only what lies between two shared boundaries is compared, so nothing is lost by merging:
    the product of a span's token probabilities is the probability of its text under either model,
    given that it is cut this way (compare arXiv:2402.12030 and the alignment of GOLD, 2025).

    Both tokenizations must end at the same place, else the rest has no counterpart and is left out.
    """
    first_cuts, second_cuts = _last_at(first_ends), _last_at(second_ends)
    spans = []
    first_start = second_start = 0
    for end in sorted(first_cuts.keys() & second_cuts.keys()):
        first_stop, second_stop = first_cuts[end], second_cuts[end]
        if first_stop > first_start and second_stop > second_start:
            spans.append((slice(first_start, first_stop), slice(second_start, second_stop)))
            first_start, second_start = first_stop, second_stop
    return spans


def span_advantages(
    student_logprobs: Sequence[float],
    teacher_logprobs: Sequence[float],
    spans: Sequence[tuple[slice, slice]],
) -> list[float]:
    """Advantage of each of the student's tokens: what the teacher thinks of the span it is in.

    A_t = Σ log p_teacher(span) - Σ log p_student(span) for every token of the span, because each of
    them decides over the whole span. With spans of one token it is minus the k1 estimate of the
    reverse KL of that token (Lu 2025, "On-policy distillation"). Tokens outside all spans get 0.
    """
    advantages = [0.0] * len(student_logprobs)
    for student, teacher in spans:
        advantage = sum(teacher_logprobs[teacher]) - sum(student_logprobs[student])
        for place in range(student.start, student.stop):
            advantages[place] = advantage
    return advantages


def _last_at(ends: Sequence[int | None]) -> dict[int, int]:
    """Each boundary's place: the number of tokens up to it, the last where several end there."""
    return {end: place + 1 for place, end in enumerate(ends) if end is not None}

"""What a reward is tried on: the expected answer in several dresses, and what models also write."""

from __future__ import annotations

from training_gym.spec.episodes import SAMPLED, Episode, Trajectory
from training_gym.spec.messages import Message, assistant
from training_gym.spec.tasks import Task


def outputs_for(task: Task) -> dict[str, str]:
    """Outputs by what they are, in words."""
    hostile = {
        "an empty output": "",
        "an output of 10000 characters": "word and again " * 667,
        "an output in many scripts": "日本語 … ∑ \U0001f3ee\u202e\x00 ñ \ud83c".encode(
            "utf-8", "replace"
        ).decode(),
        "an echo of the prompt": task.prompt_text,
    }
    if task.answer is None or isinstance(task.answer, dict | list):
        return hostile
    answer = str(task.answer)
    return {
        "the expected answer": answer,
        "the expected answer in a box": f"The answer is \\boxed{{{answer}}}.",
        "the expected answer in a tag": f"<answer>{answer}</answer>",
        **hostile,
    }


def played(task: Task, output: str, member: int) -> Episode:
    """An episode in which the policy wrote `output`."""
    prompt: tuple[Message, ...] = () if isinstance(task.prompt, str) else task.prompt
    count = len(output.split()) + 1  # a word a token, and the one that ended the turn
    return Episode(
        id=f"check-{task.id}-{member}",
        task=task,
        group=f"check-{task.id}",
        member=member,
        messages=(*prompt, assistant(output)),
        trajectories=(
            Trajectory(
                token_ids=(0,) * count,
                flags=(SAMPLED,) * count,
                logprobs=(-1.0,) * count,
                versions=(0,) * count,
                prompt_length=0,
            ),
        ),
    )

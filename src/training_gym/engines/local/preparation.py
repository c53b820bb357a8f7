"""What is set up or loaded before the parts of a run are put together."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import torch

from training_gym.records.run_directory import RunDirectory
from training_gym.records.vocabulary import write_vocabulary
from training_gym.spec.errors import RecordsError
from training_gym.spec.plan import Plan
from training_gym.spec.tasks import Task
from training_gym.spec.text import TextCodec


def prepare_torch(plan: Plan) -> None:
    """Threads and determinism, before any tensor is made."""
    engine = plan.run.recipe.engine
    if engine.threads is not None:
        torch.set_num_threads(engine.threads)
    torch.manual_seed(plan.run.recipe.seed)
    if engine.deterministic and engine.device == "cpu":
        torch.use_deterministic_algorithms(True)
        # Otherwise every new tensor is filled with NaN first, which costs and proves nothing here.
        vars(torch.utils)["deterministic"].fill_uninitialized_memory = False


def prompt_tokens(codec: TextCodec) -> Callable[[Task], int]:
    """How many tokens a task's prompt takes, as text or as messages in the model's template."""

    def count(task: Task) -> int:
        if isinstance(task.prompt, str):
            return len(codec.begin()) + len(codec.encode(task.prompt))
        return len(codec.encode(codec.render(task.prompt)))

    return count


def write_texts(
    run: RunDirectory, codec: TextCodec, say: Callable[[str], None]
) -> Callable[[], Awaitable[None]]:
    """Begin to write what each token id reads as, for views; returns how to wait for its end.

    On a thread of its own: a large vocabulary takes seconds, and nothing else waits for it. No run
    ends because it could not be written.
    """

    def write() -> None:
        if run.vocabulary_path.exists():
            return
        try:
            write_vocabulary(run, [codec.decode([token]) for token in range(codec.vocab_size)])
        except RecordsError as error:
            say(f"tokens will be shown without their texts: {error.message}")

    written = asyncio.create_task(asyncio.to_thread(write))

    async def ended() -> None:
        await written

    return ended

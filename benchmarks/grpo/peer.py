"""TRL's side: its GRPOTrainer, a step for each line on stdin."""

import os
import sys
import tempfile
import time

os.environ.update(HF_HUB_OFFLINE="1", TRL_DISABLE_TELEMETRY="1", TOKENIZERS_PARALLELISM="false")

import torch
from datasets import Dataset
from fixed_lengths import FixedLengths
from shapes import GROUP, PROMPTS, SHAPES, peak_memory_gib, prompts, tell, wait_for_turn
from transformers import AutoTokenizer, LogitsProcessorList, TrainerCallback
from trl import GRPOConfig, GRPOTrainer


class Turns(TrainerCallback):
    def __init__(self, clock):
        self.clock = clock

    def on_step_begin(self, args, state, control, **_):
        if not wait_for_turn():
            os._exit(0)
        self.clock.update(step=state.global_step, started=time.perf_counter(), sampling=0.0)

    def on_step_end(self, *_, **__):
        seconds = time.perf_counter() - self.clock["started"]
        sampling = self.clock["sampling"]
        tell(
            seconds=seconds,
            sampling=sampling,
            training=seconds - sampling,
            peak_gib=peak_memory_gib(),
        )


def main(model: str, shape_name: str, threads: int, micro_batch: int, settings: str) -> None:
    sys.stdout = sys.stderr
    torch.set_num_threads(threads)
    shape = SHAPES[shape_name]
    tokenizer = AutoTokenizer.from_pretrained(model)
    texts = prompts(shape, lambda text: len(tokenizer(text).input_ids))
    best = {"bf16": False, "gradient_checkpointing": False} if settings == "best" else {}
    config = GRPOConfig(
        output_dir=tempfile.mkdtemp(),
        use_cpu=True,
        per_device_train_batch_size=micro_batch,
        gradient_accumulation_steps=PROMPTS * GROUP // micro_batch,
        num_generations=GROUP,
        max_completion_length=shape.longest,
        max_steps=1000,
        report_to=[],
        save_strategy="no",
        learning_rate=1e-6,
        temperature=1.0,
        shuffle_dataset=False,
        disable_tqdm=True,
        **best,
    )
    clock: dict = {}
    trainer = GRPOTrainer(
        model=model,
        reward_funcs=lambda completions, **_: [float(i % 2) for i in range(len(completions))],
        args=config,
        train_dataset=Dataset.from_list([{"prompt": text} for text in texts]),
        callbacks=[Turns(clock)],
    )
    generate = trainer.model.generate

    def fixed(*args, **kwargs):
        started = time.perf_counter()
        lengths = shape.lengths(clock["step"])
        kwargs["logits_processor"] = LogitsProcessorList(
            [FixedLengths(shape.prompt_tokens, lengths, tokenizer.eos_token_id)]
        )
        try:
            return generate(*args, **kwargs)
        finally:
            clock["sampling"] += time.perf_counter() - started

    trainer.model.generate = fixed
    tell(ready=True)
    trainer.train()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), sys.argv[5])

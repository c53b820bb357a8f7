"""`transformers`' generate for `sampling.py`: one padded batch for each line on stdin."""

import os
import sys
import time

os.environ.update(HF_HUB_OFFLINE="1", TOKENIZERS_PARALLELISM="false")

import torch
from fixed_lengths import FixedLengths
from shapes import GROUP, SHAPES, peak_memory_gib, prompts, tell, wait_for_turn
from transformers import AutoModelForCausalLM, AutoTokenizer, LogitsProcessorList


@torch.inference_mode()
def main(model: str, shape_name: str, threads: int) -> None:
    torch.set_num_threads(threads)
    shape = SHAPES[shape_name]
    tokenizer = AutoTokenizer.from_pretrained(model)
    network = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32).eval()
    texts = prompts(shape, lambda text: len(tokenizer(text).input_ids))
    ids = torch.tensor([tokenizer(text).input_ids for text in texts])
    ids = ids.repeat_interleave(GROUP, dim=0)
    tell(ready=True)
    number = 0
    while wait_for_turn():
        lengths = shape.lengths(number)
        fixed = FixedLengths(shape.prompt_tokens, lengths, tokenizer.eos_token_id)
        started = time.perf_counter()
        found = network.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            max_new_tokens=shape.longest,
            do_sample=True,
            temperature=1.0,
            top_k=0,
            pad_token_id=tokenizer.eos_token_id,
            logits_processor=LogitsProcessorList([fixed]),
        )
        seconds = time.perf_counter() - started
        assert found.shape[1] - shape.prompt_tokens == max(lengths)
        tell(seconds=seconds, peak_gib=peak_memory_gib())
        number += 1


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))

"""vLLM for CPUs, for `sampling.py`: one batch of requests for each line on stdin."""

import os
import sys
import time

THREADS = int(sys.argv[3])
os.environ.update(
    HF_HUB_OFFLINE="1",
    TOKENIZERS_PARALLELISM="false",
    VLLM_LOGGING_LEVEL="ERROR",
    VLLM_ENABLE_V1_MULTIPROCESSING="0",
    VLLM_CPU_KVCACHE_SPACE="1",
    VLLM_CPU_OMP_THREADS_BIND="nobind",
    OMP_NUM_THREADS=str(THREADS),
)

from shapes import GROUP, SHAPES, peak_memory_gib, prompts, tell, wait_for_turn  # noqa: E402

from vllm import LLM, SamplingParams  # noqa: E402


def main(model: str, shape_name: str) -> None:
    shape = SHAPES[shape_name]
    engine = LLM(
        model,
        dtype="float32",
        max_model_len=512,
        max_num_seqs=32,
        enable_prefix_caching=True,
        disable_log_stats=True,
    )
    tokenizer = engine.get_tokenizer()
    texts = prompts(shape, lambda text: len(tokenizer.encode(text)))
    encoded = [tokenizer.encode(text) for text in texts for _ in range(GROUP)]
    tell(ready=True)
    number = 0
    while wait_for_turn():
        lengths = shape.lengths(number)
        wishes = [
            SamplingParams(temperature=1.0, min_tokens=n, max_tokens=n, ignore_eos=True, logprobs=0)
            for n in lengths
        ]
        started = time.perf_counter()
        found = engine.generate(
            [{"prompt_token_ids": ids} for ids in encoded], wishes, use_tqdm=False
        )
        seconds = time.perf_counter() - started
        assert [len(answer.outputs[0].token_ids) for answer in found] == lengths
        tell(seconds=seconds, peak_gib=peak_memory_gib())
        number += 1


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])

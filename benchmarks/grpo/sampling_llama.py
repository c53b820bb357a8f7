"""llama.cpp for `sampling.py`: one batch of sequences for each line on stdin, all in float32.

The group's prompt is computed once and shared by its sequences; every step decodes one token for
each that has not reached its length, and draws it from the whole distribution.
"""

import ctypes
import os
import sys
import tempfile
import time

import llama_cpp as llama
import numpy as np
from shapes import GROUP, PROMPTS, SHAPES, peak_memory_gib, prompts, tell, wait_for_turn

FLOAT32 = 0
"""Of GGML's types, and of llama.cpp's kinds of files."""


def in_float32(gguf: str, folder: str, threads: int) -> str:
    """The same weights, each written out as a float32."""
    wish = llama.llama_model_quantize_default_params()
    wish.nthread, wish.ftype, wish.allow_requantize = threads, FLOAT32, True
    path = os.path.join(folder, "float32.gguf")
    assert llama.llama_model_quantize(gguf.encode(), path.encode(), wish) == 0
    return path


class Sequences:
    """32 sequences over one model."""

    def __init__(self, path: str, shape, threads: int) -> None:
        self.model = llama.llama_model_load_from_file(
            path.encode(), llama.llama_model_default_params()
        )
        wish = llama.llama_context_default_params()
        wish.n_seq_max = PROMPTS * GROUP
        wish.n_ctx = PROMPTS * (shape.prompt_tokens + GROUP * shape.longest) + 256
        wish.n_batch = wish.n_ubatch = 2048
        wish.n_threads = wish.n_threads_batch = threads
        wish.type_k = wish.type_v = FLOAT32
        wish.kv_unified = True
        self.context = llama.llama_init_from_model(self.model, wish)
        self.memory = llama.llama_get_memory(self.context)
        self.vocabulary = llama.llama_model_get_vocab(self.model)
        self.batch = llama.llama_batch_init(2048, 0, 1)

    def tokenize(self, text: str) -> list[int]:
        found = (llama.llama_token * 4096)()
        raw = text.encode()
        count = llama.llama_tokenize(self.vocabulary, raw, len(raw), found, 4096, False, True)
        return list(found[:count])

    def decode(self, tokens: list[tuple[int, int, int, bool]]) -> np.ndarray:
        """Logits (wanted, vocabulary) of (token, position, sequence, whether they are wanted)."""
        batch = self.batch
        batch.n_tokens = len(tokens)
        for i, (token, position, sequence, wanted) in enumerate(tokens):
            batch.token[i], batch.pos[i], batch.logits[i] = token, position, wanted
            batch.n_seq_id[i], batch.seq_id[i][0] = 1, sequence
        assert llama.llama_decode(self.context, batch) == 0
        rows = sum(wanted for *_, wanted in tokens)
        width = llama.llama_vocab_n_tokens(self.vocabulary)
        start = llama.llama_get_logits(self.context)
        whole = ctypes.cast(start, ctypes.POINTER(ctypes.c_float * (rows * width))).contents
        return np.frombuffer(whole, dtype=np.float32).reshape(rows, width)

    def answer(self, encoded: list[list[int]], lengths: list[int], random) -> list[list[int]]:
        """An answer of each length, eight for each prompt."""
        llama.llama_memory_clear(self.memory, True)
        asked = [
            (token, position, group * GROUP, position == len(ids) - 1)
            for group, ids in enumerate(encoded)
            for position, token in enumerate(ids)
        ]
        logits = np.repeat(self.decode(asked), GROUP, axis=0)
        for group in range(len(encoded)):
            for member in range(1, GROUP):
                first = group * GROUP
                llama.llama_memory_seq_cp(self.memory, first, first + member, -1, -1)
        answers: list[list[int]] = [[] for _ in lengths]
        active = list(range(len(lengths)))
        while active:
            for row, token in zip(active, draw(logits, random), strict=True):
                answers[row].append(token)
            active = [row for row in active if len(answers[row]) < lengths[row]]
            if active:
                start = len(encoded[0])
                logits = self.decode(
                    [(answers[row][-1], start + len(answers[row]) - 1, row, True) for row in active]
                )
        return answers


def draw(logits: np.ndarray, random) -> list[int]:
    """One token for each row, and its log-probability, which nobody reads here."""
    weights = np.exp(logits - logits.max(axis=1, keepdims=True))
    sums = np.cumsum(weights, axis=1)
    target = random.random(len(sums)).astype(np.float32) * sums[:, -1]
    tokens = np.array([np.searchsorted(row, x) for row, x in zip(sums, target, strict=True)])
    tokens = tokens.clip(max=logits.shape[1] - 1)
    np.log(weights[np.arange(len(tokens)), tokens] / sums[:, -1])
    return tokens.tolist()


def main(gguf: str, shape_name: str, threads: int) -> None:
    shape = SHAPES[shape_name]
    llama.llama_log_set(QUIET, None)
    with tempfile.TemporaryDirectory() as folder:
        sequences = Sequences(in_float32(gguf, folder, threads), shape, threads)
        texts = prompts(shape, lambda text: len(sequences.tokenize(text)))
        encoded = [sequences.tokenize(text) for text in texts]
        tell(ready=True)
        number = 0
        while wait_for_turn():
            lengths = shape.lengths(number)
            started = time.perf_counter()
            found = sequences.answer(encoded, lengths, np.random.default_rng(number))
            seconds = time.perf_counter() - started
            assert [len(answer) for answer in found] == lengths
            tell(seconds=seconds, peak_gib=peak_memory_gib())
            number += 1


QUIET = llama.llama_log_callback(lambda *_: None)

if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))

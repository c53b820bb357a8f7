"""A fast tokenizer built from what a GGUF file says of its vocabulary.

Splitting text before byte-pair merging is part of the model: `tokenizer.ggml.pre` names it, and a
wrong split gives plausible ids the model never saw in training. So a name unknown here is refused.
The expressions are those llama.cpp uses for the same names.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from training_gym.models.gguf_header import GgufHeader
from training_gym.spec.errors import ModelError, did_you_mean

if TYPE_CHECKING:
    from tokenizers import Tokenizer

_NORMAL, _UNKNOWN, _CONTROL, _USER_DEFINED, _UNUSED = 1, 2, 3, 4, 5

_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_DIGIT = r"\p{N}"
_LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_QWEN2 = _LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
_TEKKEN = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*"
    r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)

SPLITS: dict[str, tuple[str, ...]] = {
    "gpt-2": (_GPT2,),
    "smollm": (_DIGIT, _GPT2),
    "starcoder": (_DIGIT, _GPT2),
    "refact": (_DIGIT, _GPT2),
    "command-r": (_DIGIT, _GPT2),
    "llama3": (_LLAMA3,),
    "llama-bpe": (_LLAMA3,),
    "smaug-bpe": (_LLAMA3,),
    "qwen2": (_QWEN2,),
    "deepseek-r1-qwen": (_QWEN2,),
    "tekken": (_TEKKEN,),
}
"""`tokenizer.ggml.pre` to the expressions by which text is split, one after the other."""

_WHOLE_WORDS_FIRST = {"llama3", "llama-bpe", "tekken"}
"""A word that is one token is taken whole, without merging."""
_NORMALIZED_TO_NFC = {"qwen2", "deepseek-r1-qwen"}


def tokenizer_from(header: GgufHeader) -> Tokenizer:
    """The tokenizer of a GGUF file; raises `ModelError` for a kind that is not known."""
    kind = header.get("tokenizer.ggml.model")
    if kind == "gpt2":
        tokenizer = _byte_level(header)
    elif kind == "llama":
        tokenizer = _sentencepiece(header)
    else:
        raise ModelError(
            f"the GGUF file's tokenizer is of kind {kind!r}; gpt2 and llama are known",
            fix="use the model's safetensors folder, which brings its own tokenizer.json",
        )
    _add_special_tokens(tokenizer, header)
    _add_begin_token(tokenizer, header)
    return tokenizer


def special_tokens(header: GgufHeader) -> dict[str, str]:
    """Names of special tokens as tokenizer_config.json has them, to their text."""
    tokens = header.get("tokenizer.ggml.tokens")
    named = {
        "bos_token": "bos_token_id",
        "eos_token": "eos_token_id",
        "unk_token": "unknown_token_id",
        "pad_token": "padding_token_id",
    }
    ids = {name: header.get(f"tokenizer.ggml.{key}") for name, key in named.items()}
    return {name: tokens[index] for name, index in ids.items() if index is not None}


def _byte_level(header: GgufHeader) -> Tokenizer:
    from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

    name = header.get("tokenizer.ggml.pre", "default")
    if name not in SPLITS:
        raise ModelError(
            f"the GGUF file splits text as {name!r} (tokenizer.ggml.pre), which is not known here",
            fix=did_you_mean(name, SPLITS) + "; or use the model's safetensors folder",
        )
    vocabulary = {token: i for i, token in enumerate(header.get("tokenizer.ggml.tokens"))}
    merges = [tuple(merge.split(" ")) for merge in header.get("tokenizer.ggml.merges", ())]
    tokenizer = Tokenizer(models.BPE(vocabulary, merges, ignore_merges=name in _WHOLE_WORDS_FIRST))
    splits = [pre_tokenizers.Split(Regex(part), behavior="isolated") for part in SPLITS[name]]
    as_bytes = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([*splits, as_bytes])
    tokenizer.decoder = decoders.ByteLevel()
    if name in _NORMALIZED_TO_NFC:
        tokenizer.normalizer = normalizers.NFC()
    return tokenizer


def _sentencepiece(header: GgufHeader) -> Tokenizer:
    from tokenizers import Tokenizer, decoders, models, normalizers

    tokens = [_respelled(token) for token in header.get("tokenizer.ggml.tokens")]
    unknown = header.get("tokenizer.ggml.unknown_token_id")
    tokenizer = Tokenizer(
        models.BPE(
            {token: index for index, token in enumerate(tokens)},
            _merges(tokens, header.get("tokenizer.ggml.scores"), _kinds(header)),
            unk_token=None if unknown is None else tokens[unknown],
            fuse_unk=True,
            byte_fallback=True,
        )
    )
    prefixed = bool(header.get("tokenizer.ggml.add_space_prefix", True))
    spaces = normalizers.Replace(" ", "▁")
    tokenizer.normalizer = (
        normalizers.Sequence([normalizers.Prepend("▁"), spaces]) if prefixed else spaces
    )
    steps: list[Any] = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    if prefixed:
        steps.append(decoders.Strip(" ", 1, 0))
    tokenizer.decoder = decoders.Sequence(steps)
    return tokenizer


def _respelled(token: str) -> str:
    # Gemma's files spell runs of spaces as spaces; the normalised text has ▁ there.
    return "▁" * len(token) if token and not token.strip(" ") else token


def _kinds(header: GgufHeader) -> list[int]:
    tokens = header.get("tokenizer.ggml.tokens")
    return list(header.get("tokenizer.ggml.token_type") or [_NORMAL] * len(tokens))


def _merges(tokens: list[str], scores: list[float], kinds: list[int]) -> list[tuple[str, str]]:
    """Every way to make a normal piece of two others, best score first, as sentencepiece joins."""
    normal = {token: i for i, token in enumerate(tokens) if kinds[i] in (_NORMAL, _UNUSED)}
    found = []
    for token, index in normal.items():
        for cut in range(1, len(token)):
            left, right = normal.get(token[:cut]), normal.get(token[cut:])
            if left is not None and right is not None:
                found.append((-scores[index], left, right, token[:cut], token[cut:]))
    return [(left, right) for *_, left, right in sorted(found)]


def _add_special_tokens(tokenizer: Tokenizer, header: GgufHeader) -> None:
    from tokenizers import AddedToken

    pairs = list(zip(header.get("tokenizer.ggml.tokens"), _kinds(header), strict=True))
    tokenizer.add_special_tokens(
        [
            AddedToken(token, normalized=False, special=True)
            for token, kind in pairs
            if kind in (_UNKNOWN, _CONTROL)
        ]
    )
    # Compared with the normalised text, where spaces are ▁: so runs of spaces are found too.
    tokenizer.add_tokens(
        [
            AddedToken(_respelled(token), normalized=True, special=False)
            for token, kind in pairs
            if kind == _USER_DEFINED
        ]
    )


def _add_begin_token(tokenizer: Tokenizer, header: GgufHeader) -> None:
    from tokenizers import processors

    # llama.cpp's rule: a sentencepiece vocabulary that says nothing wants its begin token.
    wants_it = header.get("tokenizer.ggml.add_bos_token", tokenizer.pre_tokenizer is None)
    begin = special_tokens(header).get("bos_token")
    if wants_it and begin is not None:
        index = header.get("tokenizer.ggml.bos_token_id")
        tokenizer.post_processor = processors.TemplateProcessing(
            single=f"{begin} $A", pair=f"{begin} $A {begin} $B", special_tokens=[(begin, index)]
        )

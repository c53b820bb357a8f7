"""Chat templates of the families we read, cut down to what shapes a conversation.

Each says which special tokens its tokenizer has and how a model of the family writes an answer.
They are written from the published templates' behaviour: what surrounds a turn, how calls and tool
results look, what happens to reasoning in earlier turns.

The published templates themselves belong to others. With `TRAINING_GYM_TEMPLATES` naming a folder,
every `NAME/*.jinja` in it, NAME being one of ours below, is put to the same tests.
"""

import json
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from training_gym.models.weights import load_codec
from training_gym.models.weights.tiny import byte_tokenizer

CHATML = ("<|im_start|>", "<|im_end|>")


@dataclass(frozen=True)
class Call:
    name: str
    arguments: dict


@dataclass(frozen=True, repr=False)
class Template:
    """A family's template and its models' habits."""

    name: str
    text: str
    special: tuple[str, ...]
    write: Callable[[str | None, str, list[Call]], str]
    """An answer from reasoning, content and calls, without the token that ends it."""
    stop: str = "<|im_end|>"
    stop_for_calls: str | None = None
    reasons: bool = False
    calls: bool = True
    most_calls: int = 3
    with_content: bool = True
    """Whether an answer may have content beside calls."""
    keeps_reasoning: bool = True
    """Whether reasoning stays while tools are called, until the user speaks."""
    opens_reasoning: bool = False
    """Whether the prompt opens the reasoning."""
    images: str | None = None
    """What stands for an image in the text."""
    family: str = ""
    extra: tuple[str, ...] = ()
    """Tokens of the vocabulary that are no special ones."""

    def __repr__(self):
        return self.name

    def codec(self, folder):
        tokenizer = byte_tokenizer((*self.extra, *MERGED), 4096, chat_template=True)
        tokenizer.add_special_tokens(
            {"additional_special_tokens": [t for t in self.special if t not in CHATML]}
        )
        tokenizer.eos_token = self.stop
        tokenizer.chat_template = self.text
        tokenizer.save_pretrained(folder)
        stops = [tokenizer.convert_tokens_to_ids(self.stop)]
        if self.stop_for_calls:
            stops.append(tokenizer.convert_tokens_to_ids(self.stop_for_calls))
        (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": stops}))
        return load_codec(folder)

    def end(self, calls):
        return self.stop_for_calls if calls and self.stop_for_calls else self.stop


MERGED = ("ab", "the", "  ", '": ', "\n\n")
"""Tokens that encoding finds and our samples avoid: who encodes a sample again gets other ids."""


def hermes(reasoning, content, calls):
    blocks = [
        f'<tool_call>\n{{"name": "{c.name}", "arguments": {json.dumps(c.arguments)}}}\n</tool_call>'
        for c in calls
    ]
    return thought(reasoning) + "\n".join([content] * bool(content) + blocks)


def thought(reasoning):
    return "" if reasoning is None else f"<think>\n{reasoning}\n</think>\n\n"


def xml(reasoning, content, calls):
    blocks = []
    for c in calls:
        lines = [
            f"<parameter={k}>\n{v if isinstance(v, str) else json.dumps(v)}\n</parameter>\n"
            for k, v in c.arguments.items()
        ]
        blocks.append(
            f"<tool_call>\n<function={c.name}>\n{''.join(lines)}</function>\n</tool_call>"
        )
    lead = "\n\n" if content and blocks else ""
    return f"{reasoning or ''}\n</think>\n\n{content}{lead}" + "\n".join(blocks)


def silent_xml(reasoning, content, calls):
    """Of a model whose prompt has closed the reasoning already."""
    return xml(None, content, calls).removeprefix("\n</think>\n\n")


def llama(reasoning, content, calls):
    if not calls:
        return content
    (c,) = calls
    return json.dumps({"name": c.name, "parameters": c.arguments})


def mistral(reasoning, content, calls):
    listed = [{"name": c.name, "arguments": c.arguments} for c in calls]
    return content + (f"[TOOL_CALLS]{json.dumps(listed)}" if calls else "")


def gemma_value(value):
    if isinstance(value, str):
        return f'<|"|>{value}<|"|>'
    if isinstance(value, dict):
        return "{" + ",".join(f"{k}:{gemma_value(v)}" for k, v in sorted(value.items())) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(gemma_value, value)) + "]"
    return json.dumps(value)


def gemma4(reasoning, content, calls):
    written = [f"<|tool_call>call:{c.name}{gemma_value(c.arguments)}<tool_call|>" for c in calls]
    head = "" if reasoning is None else f"<|channel>thought\n{reasoning}\n<channel|>"
    return head + content + "".join(written)


def glm(reasoning, content, calls):
    text = f"\n<think>{reasoning or ''}</think>" + (f"\n{content}" if content else "")
    for c in calls:
        text += f"\n<tool_call>{c.name}\n"
        for k, v in c.arguments.items():
            value = v if isinstance(v, str) else json.dumps(v)
            text += f"<arg_key>{k}</arg_key>\n<arg_value>{value}</arg_value>\n"
        text += "</tool_call>"
    return text


def glm4(reasoning, content, calls):
    if not calls:
        return f"\n{content}"
    (c,) = calls
    return f"{c.name}\n{json.dumps(c.arguments)}"


def deepseek(fence):
    def write(reasoning, content, calls):
        blocks = []
        for c in calls:
            body = json.dumps(c.arguments)
            if fence:
                inner = f"function<｜tool▁sep｜>{c.name}\n```json\n{body}\n```"
            else:
                inner = f"{c.name}<｜tool▁sep｜>{body}"
            blocks.append(f"<｜tool▁call▁begin｜>{inner}<｜tool▁call▁end｜>")
        joined = ("\n" if fence else "").join(blocks)
        if not blocks:
            return content
        return f"{content}<｜tool▁calls▁begin｜>{joined}<｜tool▁calls▁end｜>"

    return write


def harmony(reasoning, content, calls):
    text = ""
    if reasoning is not None:
        text += f"<|channel|>analysis<|message|>{reasoning}<|end|><|start|>assistant"
    if calls:
        (c,) = calls
        head = f"<|channel|>commentary to=functions.{c.name} <|constrain|>json<|message|>"
        return text + head + json.dumps(c.arguments)
    return f"{text}<|channel|>final<|message|>{content}"


HERMES_TOOLS = """\
{%- if tools %}{{ '<|im_start|>system\\n' }}
{%- if messages[0].role == 'system' %}{{ messages[0].content + '\\n\\n' }}{% endif %}
{{- '# Tools\\n<tools>' }}{% for t in tools %}{{ '\\n' + (t | tojson) }}{% endfor %}
{{- '\\n</tools><|im_end|>\\n' }}
{%- elif messages[0].role == 'system' %}
{{- '<|im_start|>system\\n' + messages[0].content + '<|im_end|>\\n' }}{% endif %}"""

HERMES_REST = """\
{%- for c in m.tool_calls or [] %}
{%- if (loop.first and content) or not loop.first %}{{ '\\n' }}{% endif %}
{{- '<tool_call>\\n{"name": "' + c.function.name + '", "arguments": ' }}
{%- if c.function.arguments is string %}{{ c.function.arguments }}
{%- else %}{{ c.function.arguments | tojson }}{% endif %}
{{- '}\\n</tool_call>' }}{% endfor %}{{ '<|im_end|>\\n' }}
{%- elif m.role == 'tool' %}
{%- if loop.first or messages[loop.index0 - 1].role != 'tool' %}{{ '<|im_start|>user' }}{% endif %}
{{- '\\n<tool_response>\\n' + m.content + '\\n</tool_response>' }}
{%- if loop.last or messages[loop.index0 + 1].role != 'tool' %}{{ '<|im_end|>\\n' }}{% endif %}
{%- endif %}{% endfor %}"""

QWEN25 = (
    HERMES_TOOLS
    + """
{%- for m in messages %}{% set content = m.content %}
{%- if m.role == 'user' or (m.role == 'system' and not loop.first) %}
{{- '<|im_start|>' + m.role + '\\n' }}
{%- if content is string %}{{ content }}{% else %}{% for p in content %}
{%- if p.type == 'image' %}{{ '<|vision_start|><|image_pad|><|vision_end|>' }}
{%- else %}{{ p.text }}{% endif %}{% endfor %}{% endif %}{{ '<|im_end|>\\n' }}
{%- elif m.role == 'assistant' %}{{ '<|im_start|>assistant\\n' + content }}"""
    + HERMES_REST
    + "{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)

LAST_QUERY = """\
{%- set ns = namespace(last=-1) %}
{%- for m in messages %}{% if m.role == 'user' %}{% set ns.last = loop.index0 %}{% endif %}
{%- endfor %}"""

QWEN3 = (
    HERMES_TOOLS
    + LAST_QUERY
    + """
{%- for m in messages %}{% set content = m.content %}
{%- if m.role == 'user' or (m.role == 'system' and not loop.first) %}
{{- '<|im_start|>' + m.role + '\\n' + content + '<|im_end|>\\n' }}
{%- elif m.role == 'assistant' %}
{%- set thought = m.reasoning_content or '' %}
{%- if loop.index0 > ns.last and (loop.last or thought) %}
{{- '<|im_start|>assistant\\n<think>\\n' + thought.strip('\\n') + '\\n</think>\\n\\n' }}
{{- content.lstrip('\\n') }}
{%- else %}{{ '<|im_start|>assistant\\n' + content }}{% endif %}"""
    + HERMES_REST
    + "{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)

QWEN35 = (
    """\
{%- if tools %}{{ '<|im_start|>system\\n<tools>' }}{% for t in tools %}{{ '\\n' + (t | tojson) }}
{%- endfor %}{{ '\\n</tools>\\nCall with <function=name><parameter=key>' }}
{%- if messages[0].role == 'system' %}{{ '\\n\\n' + messages[0].content | trim }}{% endif %}
{{- '<|im_end|>\\n' }}
{%- elif messages[0].role == 'system' %}
{{- '<|im_start|>system\\n' + messages[0].content | trim + '<|im_end|>\\n' }}{% endif %}"""
    + LAST_QUERY
    + """
{%- for m in messages %}{% set content = m.content | trim %}
{%- if m.role == 'user' %}{{ '<|im_start|>user\\n' + content + '<|im_end|>\\n' }}
{%- elif m.role == 'assistant' %}
{%- set thought = (m.reasoning_content or '') | trim %}
{%- if loop.index0 > ns.last %}
{{- '<|im_start|>assistant\\n<think>\\n' + thought + '\\n</think>\\n\\n' + content }}
{%- else %}{{ '<|im_start|>assistant\\n' + content }}{% endif %}
{%- for c in m.tool_calls or [] %}
{%- if loop.first %}{{ '\\n\\n' if content else '' }}{% else %}{{ '\\n' }}{% endif %}
{{- '<tool_call>\\n<function=' + c.function.name + '>\\n' }}
{%- for k, v in c.function.arguments.items() %}
{{- '<parameter=' + k + '>\\n' + (v if v is string else v | tojson) + '\\n</parameter>\\n' }}
{%- endfor %}{{ '</function>\\n</tool_call>' }}{% endfor %}{{ '<|im_end|>\\n' }}
{%- elif m.role == 'tool' %}
{%- if messages[loop.index0 - 1].role != 'tool' %}{{ '<|im_start|>user' }}{% endif %}
{{- '\\n<tool_response>\\n' + content + '\\n</tool_response>' }}
{%- if loop.last or messages[loop.index0 + 1].role != 'tool' %}{{ '<|im_end|>\\n' }}{% endif %}
{%- endif %}{% endfor %}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n<think>\\n' }}{% endif %}"""
)

QWEN35_SMALL = QWEN35.replace(
    "{{ '<|im_start|>assistant\\n<think>\\n' }}{% endif %}",
    "{{ '<|im_start|>assistant\\n<think>\\n\\n</think>\\n\\n' }}{% endif %}",
)
"""The small ones do not think unless told to: the prompt opens and closes an empty thought."""

SMOLLM3 = """\
{{- '<|im_start|>system\\n## Metadata\\n' }}
{%- if messages[0].role == 'system' %}{{ messages[0].content }}{% endif %}
{%- if tools %}{{ '\\n### Tools\\nAnswer <tool_call>{...}</tool_call>' }}
{%- for t in tools %}{{ '\\n' + (t.function | string) }}{% endfor %}{% endif %}
{{- '<|im_end|>\\n' }}
{%- for m in messages %}
{%- if m.role == 'user' %}{{ '<|im_start|>user\\n' + m.content + '<|im_end|>\\n' }}
{%- elif m.role == 'assistant' %}{{ '<|im_start|>assistant\\n' }}
{%- if m.reasoning_content is defined %}
{{- '<think>\\n' + m.reasoning_content + '\\n</think>\\n\\n' }}{% endif %}
{{- m.content.lstrip('\\n') }}
{%- for c in m.tool_calls or [] %}
{{- ('\\n' if not loop.first or m.content else '') + '<tool_call>\\n' }}
{{- (c.function | tojson) + '\\n</tool_call>' }}{% endfor %}{{ '<|im_end|>\\n' }}
{%- elif m.role == 'tool' %}{{ '<|im_start|>user\\n' + m.content + '<|im_end|>\\n' }}{% endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"""

LLAMA3 = """\
{{- '<|begin_of_text|>' }}
{%- if messages[0].role == 'system' %}{% set system = messages[0].content | trim %}
{%- set rest = messages[1:] %}{% else %}{% set system = '' %}{% set rest = messages %}{% endif %}
{{- '<|start_header_id|>system<|end_header_id|>\\n\\nToday Date: 26 Jul 2024\\n\\n' }}
{%- for t in tools or [] %}{{ t | tojson(indent=4) + '\\n\\n' }}{% endfor %}
{{- system + '<|eot_id|>' }}
{%- for m in rest %}
{%- if m.role == 'tool' %}
{{- '<|start_header_id|>ipython<|end_header_id|>\\n\\n' + (m.content | tojson) + '<|eot_id|>' }}
{%- elif m.tool_calls %}
{%- if m.tool_calls | length != 1 %}{{ raise_exception('one call at a time') }}{% endif %}
{%- set f = m.tool_calls[0].function %}
{{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n{"name": "' + f.name }}
{{- '", "parameters": ' + (f.arguments | tojson) + '}<|eot_id|>' }}
{%- else %}
{{- '<|start_header_id|>' + m.role + '<|end_header_id|>\\n\\n' + m.content | trim + '<|eot_id|>' }}
{%- endif %}{% endfor %}
{%- if add_generation_prompt %}
{{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}{% endif %}"""

MISTRAL = """\
{{- '<s>' }}
{%- if messages[0].role == 'system' %}
{{- '[SYSTEM_PROMPT]' + messages[0].content + '[/SYSTEM_PROMPT]' }}
{%- set rest = messages[1:] %}{% else %}{% set rest = messages %}{% endif %}
{%- if tools %}{{ '[AVAILABLE_TOOLS]' + (tools | tojson) + '[/AVAILABLE_TOOLS]' }}{% endif %}
{%- for m in rest %}
{%- if m.role == 'user' %}{{ '[INST]' }}
{%- if m.content is string %}{{ m.content }}{% else %}{% for p in m.content %}
{%- if p.type == 'image' %}{{ '[IMG]' }}{% else %}{{ p.text }}{% endif %}{% endfor %}{% endif %}
{{- '[/INST]' }}
{%- elif m.tool_calls %}{{ m.content + '[TOOL_CALLS] [' }}
{%- for c in m.tool_calls %}
{%- if c.id | length != 9 %}{{ raise_exception('ids of calls have nine letters') }}{% endif %}
{{- (c.function | tojson)[:-1] + ', "id": "' + c.id + '"}' + (', ' if not loop.last else ']') }}
{%- endfor %}{{ '</s>' }}
{%- elif m.role == 'assistant' %}{{ m.content + '</s>' }}
{%- elif m.role == 'tool' %}
{{- '[TOOL_RESULTS] {"content": ' + (m.content | tojson) + ', "call_id": "' + m.tool_call_id }}
{{- '"}[/TOOL_RESULTS]' }}{% endif %}{% endfor %}"""

GEMMA3 = """\
{{- '<bos>' }}
{%- if messages[0].role == 'system' %}{% set first = messages[0].content + '\\n\\n' %}
{%- set rest = messages[1:] %}{% else %}{% set first = '' %}{% set rest = messages %}{% endif %}
{%- for m in rest %}
{%- set role = 'model' if m.role == 'assistant' else m.role %}
{{- '<start_of_turn>' + role + '\\n' + (first if loop.first else '') }}
{%- if m.content is string %}{{ m.content | trim }}{% else %}{% for p in m.content %}
{%- if p.type == 'image' %}{{ '<start_of_image>' }}{% else %}{{ p.text | trim }}{% endif %}
{%- endfor %}{% endif %}{{ '<end_of_turn>\\n' }}{% endfor %}
{%- if add_generation_prompt %}{{ '<start_of_turn>model\\n' }}{% endif %}"""

GEMMA4 = """\
{%- macro arg(v) -%}
{%- if v is string %}{{ '<|"|>' + v + '<|"|>' }}
{%- elif v is boolean %}{{ 'true' if v else 'false' }}
{%- elif v is mapping %}{{ '{' }}{% for k, x in v | dictsort %}
{{- k + ':' + arg(x) + (',' if not loop.last else '') }}{% endfor %}{{ '}' }}
{%- elif v is none %}{{ 'null' }}
{%- elif v is sequence %}{{ '[' }}{% for x in v %}{{ arg(x) + (',' if not loop.last else '') }}
{%- endfor %}{{ ']' }}{% else %}{{ v }}{% endif %}
{%- endmacro %}
{{- '<bos>' }}
{%- if tools or messages[0].role == 'system' %}{{ '<|turn>system\\n' }}
{%- if messages[0].role == 'system' %}{{ messages[0].content | trim }}{% endif %}
{%- for t in tools or [] %}{{ '<|tool>declaration:' + t.function.name + '<tool|>' }}{% endfor %}
{{- '<turn|>\\n' }}{% endif %}
{%- for m in messages if m.role != 'system' %}
{%- set role = 'model' if m.role == 'assistant' else m.role %}
{{- '<|turn>' + role + '\\n' }}
{%- for c in m.tool_calls or [] %}
{{- '<|tool_call>call:' + c.function.name + arg(c.function.arguments) + '<tool_call|>' }}
{%- endfor %}
{%- if m.content is string %}{{ m.content | trim }}{% else %}{% for p in m.content %}
{%- if p.type == 'image' %}{{ '\\n\\n<|image|>\\n\\n' }}{% else %}{{ p.text | trim }}{% endif %}
{%- endfor %}{% endif %}{{ '<turn|>\\n' }}{% endfor %}
{%- if add_generation_prompt %}{{ '<|turn>model\\n' }}{% endif %}"""

GLM45 = (
    """\
{{- '[gMASK]<sop>' }}
{%- if tools %}{{ '<|system|>\\n# Tools\\n<tool_call>{name}\\n<arg_key>{key}</arg_key>' }}
{%- for t in tools %}{{ '\\n' + (t | tojson) }}{% endfor %}{% endif %}"""
    + LAST_QUERY
    + """
{%- for m in messages %}
{%- if m.role == 'user' %}{{ '<|user|>\\n' + m.content }}
{%- elif m.role == 'system' %}{{ '<|system|>\\n' + m.content }}
{%- elif m.role == 'assistant' %}{{ '<|assistant|>' }}
{%- if loop.index0 > ns.last and m.reasoning_content %}
{{- '\\n<think>' + m.reasoning_content.strip() + '</think>' }}
{%- else %}{{ '\\n<think></think>' }}{% endif %}
{%- if m.content.strip() %}{{ '\\n' + m.content.strip() }}{% endif %}
{%- for c in m.tool_calls or [] %}{{ '\\n<tool_call>' + c.function.name + '\\n' }}
{%- for k, v in c.function.arguments.items() %}
{{- '<arg_key>' + k + '</arg_key>\\n<arg_value>' + (v if v is string else v | tojson) }}
{{- '</arg_value>\\n' }}{% endfor %}{{ '</tool_call>' }}{% endfor %}
{%- elif m.role == 'tool' %}
{%- if messages[loop.index0 - 1].role != 'tool' %}{{ '<|observation|>' }}{% endif %}
{{- '\\n<tool_response>\\n' + m.content + '\\n</tool_response>' }}{% endif %}{% endfor %}
{%- if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"""
)

GLM4 = """\
{{- '[gMASK]<sop>' }}
{%- if tools %}{{ '<|system|>\\n' }}{% for t in tools %}{{ t | tojson }}{% endfor %}{% endif %}
{%- for m in messages %}
{%- if m.role == 'tool' %}{{ '<|observation|>\\n' + m.content }}
{%- elif m.tool_calls %}{% for c in m.tool_calls %}
{{- '<|assistant|>' + c.function.name + '\\n' + (c.function.arguments | tojson) }}{% endfor %}
{%- else %}{{ '<|' + m.role + '|>\\n' + m.content }}{% endif %}{% endfor %}
{%- if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"""

DEEPSEEK_ENDS = {
    True: "'\\n```json\\n' + c.function.arguments + '\\n```'",
    False: "c.function.arguments",
}


def deepseek_template(fence):
    opening = (
        "'<｜tool▁call▁begin｜>function<｜tool▁sep｜>'" if fence else "'<｜tool▁call▁begin｜>'"
    )
    middle = "" if fence else " + '<｜tool▁sep｜>'"
    between = "{{ '\\n' if not loop.first else '' }}" if fence else ""
    return (
        """\
{{- '<｜begin▁of▁sentence｜>' }}
{%- for m in messages if m.role == 'system' %}{{ m.content }}{% endfor %}
{%- for m in messages %}
{%- if m.role == 'user' %}{{ '<｜User｜>' + m.content + '<｜Assistant｜>' }}
{%- elif m.role == 'tool' %}
{{- '<｜tool▁output▁begin｜>' + m.content + '<｜tool▁output▁end｜>' }}
{%- elif m.role == 'assistant' %}{{ m.content }}
{%- if m.tool_calls %}{{ '<｜tool▁calls▁begin｜>' }}{% for c in m.tool_calls %}"""
        + between
        + "{{- "
        + opening
        + " + c.function.name"
        + middle
        + " + "
        + DEEPSEEK_ENDS[fence]
        + " + '<｜tool▁call▁end｜>' }}{% endfor %}{{ '<｜tool▁calls▁end｜>' }}{% endif %}"
        + "{{- '<｜end▁of▁sentence｜>' }}{% endif %}{% endfor %}{# tools #}"
    )


HARMONY = """\
{{- '<|start|>system<|message|>Valid channels: analysis, commentary, final.<|end|>' }}
{%- if tools or messages[0].role == 'system' %}{{ '<|start|>developer<|message|>' }}
{%- if messages[0].role == 'system' %}{{ messages[0].content }}{% endif %}
{%- for t in tools or [] %}{{ '\\ntype ' + t.function.name }}{% endfor %}{{ '<|end|>' }}{% endif %}
{%- set ns = namespace(tool='', final=-1) %}
{%- for m in messages %}{% if m.role == 'assistant' and not m.tool_calls %}
{%- set ns.final = loop.index0 %}{% endif %}{% endfor %}
{%- for m in messages %}
{%- if m.role == 'user' %}{{ '<|start|>user<|message|>' + m.content + '<|end|>' }}
{%- elif m.role == 'tool' %}
{{- '<|start|>functions.' + ns.tool + ' to=assistant<|channel|>commentary<|message|>' }}
{{- (m.content | tojson) + '<|end|>' }}
{%- elif m.role == 'assistant' %}
{%- set ended = loop.last and not add_generation_prompt %}
{%- if m.thinking and (loop.index0 > ns.final or ended) %}
{{- '<|start|>assistant<|channel|>analysis<|message|>' + m.thinking + '<|end|>' }}{% endif %}
{%- if m.tool_calls %}{% set ns.tool = m.tool_calls[0].function.name %}
{{- '<|start|>assistant to=functions.' + ns.tool + '<|channel|>commentary json<|message|>' }}
{{- (m.tool_calls[0].function.arguments | tojson) + '<|call|>' }}
{%- elif ended %}
{{- '<|start|>assistant<|channel|>final<|message|>' + m.content + '<|return|>' }}
{%- else %}
{{- '<|start|>assistant<|channel|>final<|message|>' + m.content + '<|end|>' }}{% endif %}
{%- endif %}{% endfor %}
{%- if add_generation_prompt %}{{ '<|start|>assistant' }}{% endif %}"""

HEADERS = ("<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>")
MISTRALS = (
    *("<s>", "</s>", "[INST]", "[/INST]", "[SYSTEM_PROMPT]", "[/SYSTEM_PROMPT]", "[IMG]"),
    *("[AVAILABLE_TOOLS]", "[/AVAILABLE_TOOLS]", "[TOOL_CALLS]", "[TOOL_RESULTS]"),
    "[/TOOL_RESULTS]",
)
GLMS = ("[gMASK]", "<sop>", "<|system|>", "<|user|>", "<|assistant|>", "<|observation|>")
DEEPSEEKS = (
    *("<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>", "<｜User｜>", "<｜Assistant｜>"),
    *(
        f"<｜tool▁{name}｜>"
        for name in (
            *("calls▁begin", "calls▁end", "call▁begin", "call▁end"),
            *("sep", "output▁begin", "output▁end"),
        )
    ),
)
HARMONIES = tuple(
    f"<|{name}|>" for name in ("start", "end", "message", "channel", "constrain", "return", "call")
)
TOOL_MARKS = ("<tool_call>", "</tool_call>", "<think>", "</think>")
VISION = ("<|vision_start|>", "<|image_pad|>", "<|vision_end|>")

REDUCED = (
    Template(
        "qwen2.5",
        QWEN25,
        (*CHATML, *VISION),
        hermes,
        extra=TOOL_MARKS[:2],
        images="<|vision_start|><|image_pad|><|vision_end|>",
        family="hermes",
    ),
    Template("qwen3", QWEN3, CHATML, hermes, reasons=True, extra=TOOL_MARKS, family="hermes"),
    Template(
        "qwen3.5",
        QWEN35,
        CHATML,
        xml,
        reasons=True,
        opens_reasoning=True,
        extra=TOOL_MARKS,
        family="qwen_xml",
    ),
    Template(
        "qwen3.5_small", QWEN35_SMALL, CHATML, silent_xml, extra=TOOL_MARKS, family="qwen_xml"
    ),
    Template("smollm3", SMOLLM3, CHATML, hermes, reasons=True, family="hermes"),
    Template(
        "llama3",
        LLAMA3,
        HEADERS,
        llama,
        stop="<|eot_id|>",
        most_calls=1,
        with_content=False,
        family="llama3",
    ),
    Template("mistral", MISTRAL, MISTRALS, mistral, stop="</s>", images="[IMG]", family="mistral"),
    Template(
        "gemma3",
        GEMMA3,
        ("<bos>", "<start_of_turn>", "<end_of_turn>", "<start_of_image>"),
        lambda reasoning, content, calls: content,
        stop="<end_of_turn>",
        calls=False,
        images="<start_of_image>",
        family="plain",
    ),
    Template(
        "gemma4",
        GEMMA4,
        (
            *("<bos>", "<|turn>", "<turn|>", "<|tool>", "<tool|>", "<|tool_call>"),
            *("<tool_call|>", '<|"|>', "<|channel>", "<channel|>", "<|image|>"),
        ),
        gemma4,
        stop="<turn|>",
        reasons=True,
        keeps_reasoning=False,
        with_content=False,
        images="\n\n<|image|>\n\n",
        family="gemma4",
    ),
    Template(
        "glm4.5",
        GLM45,
        GLMS,
        glm,
        stop="<|user|>",
        stop_for_calls="<|observation|>",
        reasons=True,
        extra=TOOL_MARKS,
        family="glm",
    ),
    Template(
        "glm4",
        GLM4,
        GLMS,
        glm4,
        stop="<|user|>",
        stop_for_calls="<|observation|>",
        most_calls=1,
        with_content=False,
        family="glm4",
    ),
    Template(
        "deepseek_v3",
        deepseek_template(True),
        DEEPSEEKS,
        deepseek(True),
        stop="<｜end▁of▁sentence｜>",
        family="deepseek",
    ),
    Template(
        "deepseek_v3.1",
        deepseek_template(False),
        DEEPSEEKS,
        deepseek(False),
        stop="<｜end▁of▁sentence｜>",
        family="deepseek",
    ),
    Template(
        "gpt_oss",
        HARMONY,
        HARMONIES,
        harmony,
        stop="<|return|>",
        stop_for_calls="<|call|>",
        reasons=True,
        most_calls=1,
        with_content=False,
        family="harmony",
    ),
)


PICTURES = {
    "qwen2.5": "".join(VISION),
    "qwen3.5": "".join(VISION),
    "qwen3.5_small": "".join(VISION),
    "mistral": "[IMG]",
    "gemma3": "<start_of_image>",
    "gemma4": "<|image|>",
}
"""What published templates write for an image."""


def published() -> Iterator[Template]:
    """The templates that models come with, as far as there are any on this machine."""
    folder = os.environ.get("TRAINING_GYM_TEMPLATES")
    for reduced in REDUCED if folder else ():
        for file in sorted(Path(str(folder), reduced.name).glob("*.jinja")):
            text = file.read_text(encoding="utf-8")
            yield replace(
                reduced,
                name=f"{reduced.name}/{file.stem}",
                text=text,
                images=PICTURES.get(reduced.name) if "'image'" in text else None,
                # Gemma 4's first templates dropped what was thought before a call, later ones not.
                keeps_reasoning=reduced.keeps_reasoning or "reasoning_content" in text,
            )


TEMPLATES = (*REDUCED, *published())

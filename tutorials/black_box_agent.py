"""The agent you already have, trained unchanged: it is given a base URL and a key, no more.

    training-gym train black_box_agent.py

`AGENT` stands for your agent: a program that knows nothing of training. Here it asks a model for
an example of something, asks again if the answer is long, and prints what it settles on. Every
request goes through the gateway, which records the tokens; the reward looks at what was printed.
Yours may be any command, in a sandbox too (`sandbox=SandboxSpec(…)`): docs/environments.md.
"""

import re

from training_gym import AdamW, Eval, Recipe, TrainConfig
from training_gym.environments.harness import HarnessEnvironment

AGENT = """
import json, os, sys, urllib.request

def ask(messages):
    request = urllib.request.Request(
        os.environ["OPENAI_BASE_URL"] + "/chat/completions",
        json.dumps({"model": "any", "messages": messages, "max_tokens": 12}).encode(),
        {"Authorization": "Bearer " + os.environ["OPENAI_API_KEY"],
         "Content-Type": "application/json"},
    )
    return json.load(urllib.request.urlopen(request))["choices"][0]["message"]["content"]

messages = [{"role": "user", "content": "Name one " + sys.argv[1] + ". Answer with one word."}]
answer = ask(messages)
if len(answer.split()) > 1:
    messages += [{"role": "assistant", "content": answer},
                 {"role": "user", "content": "Too long. One word only."}]
    answer = ask(messages)
print(answer)
"""

KNOWN = {
    "animal": "dog cat horse cow lion tiger elephant bear wolf fox rabbit mouse bird fish whale",
    "color": "red blue green yellow orange purple black white brown pink gray grey violet gold",
    "fruit": "apple banana orange pear grape cherry lemon mango peach plum kiwi melon strawberry",
    "country": "france germany italy spain china india japan brazil canada mexico egypt america",
    "planet": "mercury venus earth mars jupiter saturn uranus neptune",
    "metal": "iron gold silver copper tin lead zinc nickel aluminum platinum titanium steel",
    "month": "january february march april june july august september october november december",
    "instrument": "piano guitar violin drum flute trumpet cello harp clarinet saxophone organ",
}
HELD_OUT = {
    "tree": "oak pine maple birch willow cedar elm ash fir palm spruce beech redwood",
    "sport": "football soccer tennis basketball baseball golf hockey swimming running rugby",
    "vegetable": "carrot potato tomato onion pepper spinach broccoli cabbage lettuce pea bean",
    "drink": "water coffee tea milk juice wine beer soda lemonade cocoa",
}


def rows(kinds):
    return [
        {"prompt": f"Name one {kind}.", "answer": names, "kind": kind}
        for kind, names in kinds.items()
    ]


def one_word(episode):
    """1 for the name of one alone; less the more is said around it; little for being short."""
    printed = str(episode.outcome.artifacts.get("output", episode.completion))
    said = re.findall(r"[a-z]+", printed.lower())
    named = any(word.removesuffix("s") in episode.answer.split() for word in said)
    short = 1 / len(said) if said else 0.0
    return {"reward": named * (0.3 + 0.5 * short) + 0.2 * short, "named": named, "short": short}


config = TrainConfig(
    name="black-box-agent",
    model="smollm2-135m",
    dataset=rows(KNOWN),
    environment=HarnessEnvironment(
        command=("python3", "agent.py", "$kind"), files={"agent.py": AGENT}
    ),
    reward=one_word,
    recipe=Recipe(
        num_steps=8,
        prompts_per_batch=4,
        group_size=8,
        max_response_tokens=12,
        optimizer=AdamW(learning_rate=5e-5),
    ),
    evals=[Eval(name="held_out", dataset=rows(HELD_OUT), samples=4)],
)

if __name__ == "__main__":
    config.train()

"""Teach a small model to write 5-7-5 haiku about a topic. Trains on a laptop's CPU.

training-gym train haiku.py
"""

from training_gym import AdamW, Eval, Recipe, TrainConfig
from training_gym.rewards.library import SyllablePattern, distinct_words, mentions

shaped = SyllablePattern(pattern=(5, 7, 5))
TRAIN = """rain snow wind moon river forest mountain ocean desert garden winter summer autumn
spring morning evening midnight sunrise thunder lightning frost mist cloud star candle lantern
bridge harbor island meadow orchard willow maple cedar bamboo lotus rose tulip clover moss sparrow
heron crow owl swallow cricket firefly beetle spider salmon turtle rabbit fox wolf horse train
kettle letter mirror clock violin drum silence memory""".split()
HELD_OUT = """storm hail lake valley canyon fog dawn dusk rainbow ember shadow lighthouse
village pasture vineyard oak pine fern lily daisy robin crane dragonfly butterfly frog whale deer
bear piano window tea hope""".split()
PROMPT = """Write a haiku: three lines of 5, 7 and 5 syllables.

Topic: ice
Ice upon the pond
holds the pale light of morning
until the geese land

Topic: {}"""


def about(topics):
    return [{"prompt": PROMPT.format(topic), "answer": topic} for topic in topics]


def haiku(episode):
    """How near to 5-7-5, times whether the topic is named, times the share of distinct words."""
    verse = episode.completion
    shape = shaped(episode)
    named = float(mentions(verse, episode.answer))
    distinct = distinct_words(verse)
    return {
        "reward": shape * named * distinct,
        "shape": shape,
        "named": named,
        "distinct": distinct,
    }


config = TrainConfig(
    name="haiku",
    model="smollm2-135m",
    dataset=about(TRAIN),
    reward=haiku,
    recipe=Recipe(
        num_steps=12,
        prompts_per_batch=8,
        group_size=8,
        max_response_tokens=36,
        optimizer=AdamW(learning_rate=3e-5),
    ),
    evals=[Eval(name="held_out", dataset=about(HELD_OUT), samples=2)],
)

if __name__ == "__main__":
    config.train()

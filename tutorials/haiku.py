"""Teach a small model to write 5-7-5 haiku about a topic. Trains on a laptop's CPU.

training-gym train haiku.py
"""

from training_gym import AdamW, Eval, Recipe, TrainConfig, group_reward
from training_gym.rewards.library import SyllablePattern, fresh_words, mentions

shaped = SyllablePattern(pattern=(5, 7, 5))
TRAIN = """rain snow wind moon river forest mountain ocean desert garden winter summer autumn
spring morning evening midnight sunrise thunder lightning frost mist cloud star candle lantern
bridge harbor island meadow orchard willow maple cedar bamboo lotus rose tulip clover moss sparrow
heron crow owl swallow cricket firefly beetle spider salmon turtle rabbit fox wolf horse train
kettle letter mirror clock violin drum silence memory""".split()
HELD_OUT = """storm hail lake valley canyon fog dawn dusk rainbow ember shadow lighthouse
village pasture vineyard oak pine fern lily daisy robin crane dragonfly butterfly frog whale deer
bear piano window tea hope""".split()
ICE = "Ice upon the pond\nholds the morning light until\nthe wild geese return"
SHOWN = [
    {"role": "system", "content": "You write haiku: three lines of 5, 7 and 5 syllables."},
    {"role": "user", "content": "Write a haiku about ice."},
    {"role": "assistant", "content": ICE},
]


def about(topics):
    asked = [{"role": "user", "content": f"Write a haiku about {topic}."} for topic in topics]
    return [{"prompt": [*SHOWN, ask], "answer": t} for ask, t in zip(asked, topics, strict=True)]


def verse(episode, fresh):
    shape, named = shaped(episode), float(mentions(episode.completion, episode.answer))
    return {"reward": shape * named * fresh, "shape": shape, "named": named, "fresh": fresh}


@group_reward
def haiku(episodes):
    """How near to 5-7-5, times whether the topic is named, times how new its words are."""
    fresh = fresh_words([episode.completion for episode in episodes])
    return list(map(verse, episodes, fresh))


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

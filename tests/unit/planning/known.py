"""Models and machines the planning tests share."""

from training_gym.spec.plan import Architecture, Machine
from training_gym.spec.run import RunSpec

SMOLLM2_135M = Architecture(
    family="llama",
    num_parameters=134_515_008,
    num_layers=30,
    hidden_size=576,
    intermediate_size=1536,
    num_heads=9,
    num_kv_heads=3,
    head_dim=64,
    vocab_size=49152,
    max_context_tokens=8192,
    tied_embeddings=True,
)
QWEN3_8B = Architecture(
    family="qwen3",
    num_parameters=8_190_000_000,
    num_layers=36,
    hidden_size=4096,
    intermediate_size=12288,
    num_heads=32,
    num_kv_heads=8,
    head_dim=128,
    vocab_size=151936,
    max_context_tokens=40960,
    tied_embeddings=False,
)
LAPTOP = Machine(cpu_cores=4, memory_gib=16)
H200 = Machine(
    cpu_cores=16,
    memory_gib=128,
    accelerator="NVIDIA H200",
    accelerators=1,
    accelerator_memory_gib=139,
)


def haiku(**recipe: object) -> RunSpec:
    return RunSpec(
        model="smollm2-135m",
        dataset="topics.jsonl",
        reward="my_rewards:haiku",
        recipe={"num_steps": 3, "max_response_tokens": 48, **recipe},
    )

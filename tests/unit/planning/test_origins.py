from training_gym.planning import origins_of
from training_gym.spec.recipe import RECIPES, AdamW, Recipe
from training_gym.spec.run import RunSpec


def defined(**fields: object) -> RunSpec:
    return RunSpec(**{"model": "m", "dataset": ["x"], "reward": "r:f", **fields})


def test_what_is_not_given_is_the_default() -> None:
    origins = origins_of(defined())
    assert origins["model"] == "user"
    assert origins["name"] == "default"
    assert origins["compute.kind"] == "default"
    assert origins["recipe.num_steps"] == "default"


def test_a_named_recipes_values_are_the_recipes() -> None:
    origins = origins_of(defined(recipe="sft"))
    assert origins["recipe.algorithm.kind"] == "recipe"
    assert origins["recipe.optimizer.learning_rate"] == "recipe"
    assert origins["recipe.optimizer.beta1"] == "default"
    assert origins["recipe.num_steps"] == "default"


def test_a_recipe_of_ones_own_is_the_users_where_it_was_set() -> None:
    origins = origins_of(defined(recipe=Recipe(optimizer=AdamW(learning_rate=1e-6))))
    # equal to the default, but given
    assert origins["recipe.optimizer.learning_rate"] == "user"
    assert origins["recipe.optimizer.weight_decay"] == "default"


def test_a_changed_recipe_is_the_users_only_where_it_was_changed() -> None:
    sft = RECIPES["sft"]
    changed = sft.changed(optimizer=sft.optimizer.changed(warmup_steps=3), num_steps=7)
    origins = origins_of(defined(recipe=changed))
    assert origins["recipe.num_steps"] == "user"
    assert origins["recipe.optimizer.warmup_steps"] == "user"
    assert origins["recipe.optimizer.learning_rate"] == "recipe"
    assert origins["recipe.group_size"] == "recipe"


def test_paths_set_by_hand_are_the_users_even_where_equal() -> None:
    origins = origins_of(defined(recipe="sft"), {"recipe.group_size", "recipe.optimizer"})
    assert origins["recipe.group_size"] == "user"
    assert origins["recipe.optimizer.learning_rate"] == "user"
    assert origins["recipe.prompts_per_batch"] == "recipe"


def test_parts_of_lists_are_leaves_of_their_own() -> None:
    origins = origins_of(defined(evals=[{"name": "held_out", "dataset": ["y"], "samples": 2}]))
    assert origins["evals.0.samples"] == "user"
    assert origins["evals.0.every"] == "default"

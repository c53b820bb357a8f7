from training_gym.jobs.facts import Facts, deviations, gather_facts
from training_gym.spec.plan import Machine

MACHINE = Machine(cpu_cores=2, memory_gib=8)


def test_facts_hold_versions_of_what_is_installed_only() -> None:
    facts = gather_facts(MACHINE, 2, ["pytest>=8", "no-such-package-anywhere"])
    assert {"pydantic", "pytest"} <= facts.packages.keys()
    assert "no-such-package-anywhere" not in facts.packages
    assert Facts.read_json(facts.model_dump_json()) == facts


def test_nothing_deviates_from_itself_or_for_a_little_memory() -> None:
    facts = gather_facts(MACHINE, 2)
    assert deviations(facts, facts) == ()
    assert deviations(facts, facts.changed(machine=MACHINE.changed(memory_gib=7.9))) == ()


def test_every_difference_that_may_change_bits_is_stated() -> None:
    before = gather_facts(MACHINE, 2)
    now = before.changed(
        packages={**before.packages, "torch": "99", "new": "1"},
        threads=1,
        machine=MACHINE.changed(cpu_cores=1),
        processor="another",
    )
    stated = "\n".join(deviations(before, now))
    assert "→ 99" in stated
    assert "new not installed → 1" in stated
    assert "threads 2 → 1" in stated
    assert "machine cpu_cores 2 → 1" in stated
    assert "→ another" in stated

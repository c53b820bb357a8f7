"""Agents that exist already: any command that takes a base URL and a key."""

from training_gym.environments.harness.environment import HarnessEnvironment

__all__ = ["HarnessEnvironment"]

"""Environments in which the policy calls tools: Python functions and MCP servers."""

from training_gym.environments.tools.environment import ToolEnvironment
from training_gym.environments.tools.mcp import McpServer

__all__ = ["McpServer", "ToolEnvironment"]

"""Agents that other people wrote, unchanged: they get a base URL and a key, no more."""

import asyncio

import pytest


def call(name, arguments):
    return f'<tool_call>{{"name": "{name}", "arguments": {arguments}}}</tool_call>'


def test_an_agent_of_pydantic_ai_uses_its_tools(serve, play, codec):
    pydantic_ai = pytest.importorskip("pydantic_ai")
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.providers.openai import OpenAIProvider

    both = call("multiply", '{"a":6,"b":7}') + call("multiply", '{"a": 2, "b": 2}')
    answers = [f"<think>two at once</think>{both}", call("multiply", '{"a": 4}'), "42 and 4."]

    async def talk():
        async with serve(answers, tolerated=frozenset(("strict",))) as served:
            session = served.session
            provider = OpenAIProvider(base_url=session.openai_url, api_key=session.key)
            agent = pydantic_ai.Agent(
                OpenAIChatModel("policy", provider=provider), system_prompt="Use your tools."
            )
            seen = []

            @agent.tool_plain
            def multiply(a: int, b: int) -> int:
                """Multiply."""
                seen.append((a, b))
                return a * b

            result = await agent.run("What are 6 times 7 and 2 times 2?")
            served.clients.append(provider.client)
            assert result.output == "42 and 4."
            assert sorted(seen) == [(2, 2), (6, 7)]
            # The second call lacks an argument: the agent is told, and goes on.
            assert [f.kind for f in served.record.fidelity] == ["opened", "grown", "grown"]
            (made,) = served.record.trajectories()
            assert made.num_sampled == sum(len(codec.encode(a)) + 1 for a in answers)

    play(talk())


def test_an_agent_of_smolagents_writes_and_runs_code(serve, play, codec):
    smolagents = pytest.importorskip("smolagents")
    answers = [
        "Thought: multiply.\n<code>\nx = 6 * 7\nprint(x)\n</code>",
        "Thought: done.\n<code>\nfinal_answer(x)\n</code>",
    ]

    async def talk():
        async with serve(answers) as served:
            session = served.session
            model = smolagents.OpenAIServerModel(
                "policy", api_base=session.openai_url, api_key=session.key
            )
            agent = smolagents.CodeAgent(tools=[], model=model, max_steps=3, verbosity_level=0)
            found = await asyncio.to_thread(agent.run, "What is 6 times 7?")
            await asyncio.to_thread(model.client.close)
            assert found == 42
            assert len(served.sampler.calls) == 2
            trained = sum(made.num_sampled for made in served.record.trajectories())
            assert trained == sum(len(codec.encode(answer)) + 1 for answer in answers)

    play(talk())

"""One of several trainers, whose gradients and moments are sharded over a process group."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard

from training_gym.engines.local.network import Network
from training_gym.engines.local.parallel.ranks import Rank

T = TypeVar("T")


class Packed(torch.nn.Module):
    """Backbone and head as one module, so that FSDP sees tied weights once.

    Its forward is the backbone's: the head is called by itself, a few rows at a time.
    """

    def __init__(self, backbone: torch.nn.Module, head: torch.nn.Module) -> None:
        """Both stay where they are in the model, too."""
        super().__init__()
        self.backbone = backbone
        self.head = head

    def forward(self, **given: Any) -> Any:
        """What the backbone makes of it."""
        return self.backbone(**given)


class Sharded:
    """Implements `Replicas` over the default process group, which exists already."""

    def __init__(self, network: Network, ranks: Sequence[Rank] = ()) -> None:
        """Shard the network's parameters; the leader has `ranks`, the others none.

        Call `gather_weights` when the optimizer has taken up the shards. From then on the weights
        are whole in every process, except within `sharded()`.
        """
        self.rank, self.world = dist.get_rank(), dist.get_world_size()
        self._ranks = ranks
        self._network = network
        self._objects = dist.new_group(backend="gloo")
        mesh = init_device_mesh(network.device.type, (self.world,))
        root = Packed(*network.parts)
        self._modules: list[FSDPModule] = []
        for module in (*_layers(root.backbone), root):
            wrapped = fully_shard(module, mesh=mesh, reshard_after_forward=False)
            wrapped.set_reshard_after_backward(False, recurse=False)
            # Losses are normalised over the whole batch: gradients are summed, not averaged.
            wrapped.set_gradient_divide_factor(1.0)
            wrapped.set_force_sum_reduction_for_comms(True)
            self._modules.append(wrapped)
        network.compute_through(root)

    def gather_weights(self) -> None:
        """Make the weights whole in every process."""
        for module in self._modules:
            module.unshard()
        self._network.release()  # torch does not count the gathering as a change of the weights

    @contextmanager
    def leading(self, name: str, *given: Any) -> Iterator[None]:
        """See `Replicas`. Raises `EngineError` where one of the others has died."""
        answers = [rank.call(name, *given) for rank in self._ranks]
        try:
            yield
        except RuntimeError:
            # A collective fails when a member dies; what befell that member says more.
            for rank in self._ranks:
                rank.raise_if_ended()
            raise
        for answer in answers:
            answer.result()

    def exchange(self, value: T) -> list[T]:
        """See `Replicas`."""
        found: list[T] = [value] * self.world
        dist.all_gather_object(found, value, group=self._objects)
        return found

    def last_backward(self, yes: bool) -> None:
        """See `Replicas`."""
        for module in self._modules:
            module.set_requires_gradient_sync(yes, recurse=False)

    def sum_gradients(self, parameters: Iterable[torch.nn.Parameter]) -> None:
        """See `Replicas`."""
        for parameter in parameters:
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
            dist.all_reduce(parameter.grad)

    @contextmanager
    def sharded(self) -> Iterator[None]:
        """See `Replicas`."""
        for module in self._modules:
            module.reshard()
        try:
            yield
        finally:
            self.gather_weights()

    def whole_state(self, model: torch.nn.Module) -> dict[str, torch.Tensor] | None:
        """See `Replicas`: FSDP's `state_dict()` would give this process's shards."""
        passing = {
            f"{path}.{name}" if path else name
            for path, module in model.named_modules()
            for name in module._non_persistent_buffers_set
        }
        parameters = model.named_parameters(remove_duplicate=False)
        state = {name: parameter.detach() for name, parameter in parameters}
        return state | {name: b for name, b in model.named_buffers() if name not in passing}


def _layers(backbone: torch.nn.Module) -> list[torch.nn.Module]:
    """The decoder's layers, each of which becomes a unit of communication."""
    lists = [list(m) for m in backbone.modules() if isinstance(m, torch.nn.ModuleList)]
    return max(lists, key=len, default=[])

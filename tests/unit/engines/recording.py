"""A stand-in for CUDA graphs that runs anywhere, and is as strict.

It writes down every operation of a step with the very tensors it was called with, and repeats them
into the tensors they returned: no line of Python of the step runs again, so nothing but what lies
in buffers can differ. What a recording on an accelerator must not do is an error here, too: asking
for a number that lies on the device, or bringing one there.
"""

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

FORBIDDEN = {
    torch.ops.aten._local_scalar_dense.default: "a number was read from the device",
    torch.ops.aten.lift_fresh.default: "a number was brought to the device",
    torch.ops.aten.nonzero.default: "a shape depends on numbers on the device",
}


class Operations(TorchDispatchMode):
    """What was called, with what, and what came of it."""

    def __init__(self):
        super().__init__()
        self.calls = []

    def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
        if operation in FORBIDDEN:
            raise RuntimeError(FORBIDDEN[operation])
        result = operation(*args, **(kwargs or {}))
        self.calls.append((operation, args, kwargs or {}, result))
        return result

    def repeat(self):
        for operation, args, kwargs, result in self.calls:
            given = {storage(each) for each in tensors((args, kwargs))}
            if operation._schema.is_mutable:
                operation(*args, **kwargs)
            elif not all(storage(each) in given for each in tensors(result)):
                again = operation(*args, **kwargs)  # else a view, which shows what it showed
                for kept, new in zip(tensors(result), tensors(again), strict=True):
                    kept.copy_(new)


class ReplayingRecorder:
    """Implements `graphs.Recorder` on a CPU."""

    def __init__(self):
        self.steps = 0
        self.forgotten = 0

    def record(self, step):
        step()  # as on the stream that is recorded
        with Operations() as operations:
            step()
        self.steps += 1
        return operations.repeat

    def forget(self):
        self.forgotten += 1


def tensors(tree):
    return [leaf for leaf in tree_leaves(tree) if isinstance(leaf, torch.Tensor)]


def storage(tensor):
    return tensor.untyped_storage().data_ptr()

"""Several processes that sample and train together, one to each GPU or share of the CPU.

Every process holds the whole weights while it computes; gradients and the optimizer's moments are
sharded (`torch.distributed.fsdp`'s FSDP2 with `reshard_after_forward=False`, the second stage of
ZeRO, Rajbhandari et al. 2020, arXiv:1910.02054). The first process leads: it plays the episodes,
keeps the records and tells the others what to do.
"""

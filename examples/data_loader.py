"""A DataLoader: split batches in its workers
==========================================

Store each sample's tokens, targets and weights in one row, and split the batches in the workers.

A forked worker always copies on one thread, since the other workers use the other cores. In a
worker that is a new process, batches as small as these take one thread, too. Requires torch.
"""

# sphinx_gallery_thumbnail_path = '_made/thumbnails/data_loader.svg'

import os

import torch
from torch.utils.data import DataLoader, TensorDataset

import splitjit

LENGTH = 128
stored = torch.arange(1000 * 3 * LENGTH, dtype=torch.int32).reshape(1000, 3 * LENGTH)


def collate(rows):
    """Stack the rows of a batch, and split the batch into contiguous tensors."""
    batch = torch.stack([row for (row,) in rows])
    return splitjit.split(batch, num_splits=3, axis=1), os.getpid()


if __name__ == "__main__":  # a worker that is a new process imports this file
    loader = DataLoader(TensorDataset(stored), batch_size=256, num_workers=2, collate_fn=collate)
    workers, start = set(), 0
    for (tokens, targets, weights), worker in loader:
        rows = stored[start : start + len(tokens)]
        assert torch.equal(torch.cat([tokens, targets, weights], dim=1), rows)
        assert targets.is_contiguous()
        start += len(tokens)
        workers.add(worker)
        print("a batch of three tensors", tuple(tokens.shape))
    assert os.getpid() not in workers
    print(start, "samples from", len(workers), "workers")

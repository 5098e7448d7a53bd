"""A torch module: one projection for queries, keys and values
===========================================================

Split tensors inside a module, for inference and for training.

Requires torch.
"""

# sphinx_gallery_thumbnail_path = '_made/thumbnails/torch_module.svg'

import torch

import splitjit


class Attention(torch.nn.Module):
    """Attention with 4 query heads, and one head of keys and values that they share."""

    def __init__(self, width=64, head=16):
        super().__init__()
        self.head, self.sizes = head, [width, head, head]
        self.qkv = torch.nn.Linear(width, sum(self.sizes))

    def forward(self, x):
        """Return the attended values, as wide as `x`."""
        q, k, v = splitjit.split(self.qkv(x), self.sizes, axis=-1)
        heads = q.view(*q.shape[:-1], -1, self.head).transpose(-3, -2)  # q is contiguous
        scores = heads @ k.unsqueeze(-3).transpose(-2, -1) / self.head**0.5
        attended = torch.softmax(scores, dim=-1) @ v.unsqueeze(-3)
        return attended.transpose(-3, -2).flatten(-2)


torch.manual_seed(0)
module = Attention()
x = torch.randn(2, 10, 64)

# %%
# For inference, splitjit copies the memory of the tensor into new tensors.
with torch.inference_mode():
    y = module(x)
    fused = module.qkv(x)
    for part, view in zip(
        splitjit.split(fused, module.sizes, axis=-1), fused.split(module.sizes, -1), strict=True
    ):
        assert torch.equal(part, view)
        assert part.is_contiguous()
        assert not view.is_contiguous()
print("output", tuple(y.shape))

# %%
# In training, the weight gets the same gradient as with torch.split.


def gradient(split):
    """Return the gradient of a loss that weights the three parts differently."""
    parts = split(module.qkv(x))
    loss = sum((i + 1) * part.square().sum() for i, part in enumerate(parts))
    return torch.autograd.grad(loss, module.qkv.weight)[0]


ours = gradient(lambda fused: splitjit.split(fused, module.sizes, axis=-1))
assert torch.equal(ours, gradient(lambda fused: fused.split(module.sizes, -1)))
print("gradient of the weight", tuple(ours.shape), "equals that of torch.split")

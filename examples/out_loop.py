"""Video: out= in a loop
=====================

Split one frame after another into the same three planes, without new memory.

Requires only splitjit.
"""

# sphinx_gallery_thumbnail_path = '_made/thumbnails/out_loop.svg'

import numpy as np

import splitjit

height, width, frames = 120, 160, 10
rng = np.random.default_rng(0)
planes = np.empty((3, height, width), np.uint8)  # where another program expects the frame
out = [plane[:, :, None] for plane in planes]

# %%
# Each call of split looks up its plan, and checks the three arrays.
frame = rng.integers(0, 256, (height, width, 3), np.uint8)
returned = splitjit.split(frame, num_splits=3, axis=2, out=out)
assert all(part is given for part, given in zip(returned, out, strict=True))
np.testing.assert_array_equal(planes, frame.transpose(2, 0, 1))

# %%
# bind checks them before the loop, and keeps them with the plan; each call checks them again.
into = splitjit.plan_split(frame.shape, num_splits=3, axis=2).bind(out)
brightness = np.zeros(3)
expected = np.zeros(3)
for _ in range(frames):
    frame = rng.integers(0, 256, (height, width, 3), np.uint8)
    into(frame)
    brightness += planes.mean(axis=(1, 2)) / frames
    expected += frame.mean(axis=(0, 1)) / frames

np.testing.assert_allclose(brightness, expected)
print(f"{frames} frames, mean of red, green and blue:", brightness.round(1))

"""A photograph: split, filter, stack
==================================

Split a photograph into its planes, sharpen each plane, and stack them to a photograph again.

The photograph of Grace Hopper comes with Matplotlib: pip install matplotlib
"""

import matplotlib.cbook
import matplotlib.image
import matplotlib.pyplot as plt
import numpy as np

import splitjit

with matplotlib.cbook.get_sample_data("grace_hopper.jpg") as file:
    photo = matplotlib.image.imread(file, format="jpg")
print("photo", photo.shape, photo.dtype, "strides", photo.strides)

planes = splitjit.unstack(photo, axis=2)
for channel, (name, plane) in enumerate(zip(("red", "green", "blue"), planes, strict=True)):
    np.testing.assert_array_equal(plane, photo[:, :, channel])
    print(f"{name:6}{plane.shape} strides {plane.strides} mean {plane.mean():.1f}")


# %%
# A filter for one plane.
def sharpen(plane):
    """Move each pixel away from the mean of its neighbours."""
    wide = plane.astype(np.int16)
    mean = sum(np.roll(wide, shift, axis) for axis in (0, 1) for shift in (-1, 1)) // 4
    return np.clip(2 * wide - mean, 0, 255).astype(plane.dtype)


sharp = splitjit.stack([sharpen(plane) for plane in planes], axis=2)
print("sharpened", sharp.shape, "strides", sharp.strides)

figure, panels = plt.subplots(1, 2, figsize=(6, 3.6), layout="constrained")
for panel, name, shown in zip(panels, ("before", "after"), (photo, sharp), strict=True):
    panel.imshow(shown)
    panel.set_title(name)
    panel.set_axis_off()
plt.show()

# %%
# Without a filter, the way back gives the same bytes. ``out=`` writes to an array that exists.
restored = splitjit.stack(planes, axis=2, out=np.empty_like(photo))
np.testing.assert_array_equal(restored, photo)

# %%
# For an array of shape (channel, height, width), write each plane directly into place.
stacked = np.empty((3, *photo.shape[:2]), np.uint8)
splitjit.unstack(photo, axis=2, out=stacked)
np.testing.assert_array_equal(stacked, photo.transpose(2, 0, 1))
print("stacked", stacked.shape)

"""A photograph: red, green and blue
=================================

Split a photograph into its red, green and blue planes.

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

# Each part keeps the channel axis, with length 1. reshape drops this axis without a copy.
parts = splitjit.split(photo, num_splits=3, axis=2)
planes = [part.reshape(photo.shape[:2]) for part in parts]
for channel, (name, plane) in enumerate(zip(("red", "green", "blue"), planes, strict=True)):
    np.testing.assert_array_equal(plane, photo[:, :, channel])
    print(f"{name:6}{plane.shape} strides {plane.strides} mean {plane.mean():.1f}")

figure, panels = plt.subplots(1, 3, figsize=(6, 2.6), layout="constrained")
for panel, name, plane in zip(panels, ("red", "green", "blue"), planes, strict=True):
    panel.imshow(plane, cmap="gray")
    panel.set_title(name)
    panel.set_axis_off()
plt.show()

# %%
# For an array of shape (channel, height, width), write each plane directly into place.
stacked = np.empty((3, *photo.shape[:2]), np.uint8)
splitjit.split(photo, num_splits=3, axis=2, out=[plane[:, :, None] for plane in stacked])
np.testing.assert_array_equal(stacked, photo.transpose(2, 0, 1))
print("stacked", stacked.shape)

"""Audio: chunks with a remainder
==============================

Cut a stereo recording into chunks of half a second, and separate its two channels.

The recording is not a whole number of chunks, so the last one is shorter. Requires only splitjit.
"""

# sphinx_gallery_thumbnail_path = '_made/thumbnails/audio_chunks.svg'

import numpy as np

import splitjit

rate = 16_000
time = np.arange(int(3.1 * rate)) / rate
tones = np.sin(2 * np.pi * np.array([440, 660]) * time[:, None])
recording = (8000 * tones).astype(np.int16)  # in memory: left, right, left, right, …

# One integer is the length of each chunk.
plan = splitjit.plan_split(recording.shape, rate // 2)
print(plan)
plan  # a notebook shows this plan as a picture

# %%
# Each chunk is an array of its own, which stays valid if the recording's buffer is reused.
chunks = plan(recording)
for i, (start, length) in enumerate(plan):
    np.testing.assert_array_equal(chunks[i], recording[start : start + length])
print("chunks of", [len(chunk) for chunk in chunks], "frames")

# %%
# For a model that takes one channel at a time, make each channel contiguous.
left, right = (part[:, 0] for part in splitjit.split(recording, num_splits=2, axis=1))
np.testing.assert_array_equal(right, recording[:, 1])
print("strides of a channel:", right.strides, "instead of", recording[:, 1].strides)

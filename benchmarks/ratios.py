"""Time of splitjit over the time of others, in one process. Below 1, splitjit is faster.

Ratios are comparable between machines and days; times are not.
"""

from benchmarks.compare import LIMIT, OURS, PEERS, Case, contenders, measure

CASES = {
    "tiny": Case((6,), 0, (2,) * 3),
    "16 tokens qkv": Case((16, 2304), 1, (768,) * 3),
    "512 tokens qkv": Case((512, 2304), 1, (768,) * 3),
    "gate and up": Case((1024, 22016), 1, (11008,) * 2),
    "axis 0": Case((4096, 4096), 0, (1024,) * 4),
    "short runs": Case((100_000, 100), 1, (10,) * 10),
    "channels": Case((1080, 1920, 3), 2, (1,) * 3, "uint8"),
}

RIVALS = {name: (name,) for name in PEERS} | {"best peer": PEERS, "limit": LIMIT}


class Ratio:
    """Time of splitjit over the time of a peer, the best installed peer, or a plain C copy."""

    version = "1"
    unit = "ours/theirs"
    timeout = 120
    params = (list(CASES), ["fresh", "out"], list(RIVALS))
    param_names = ("case", "target", "rival")

    def setup(self, case, target, rival):
        names = (OURS, *RIVALS[rival])
        self.calls = contenders(CASES[case], fresh=target == "fresh", names=names)
        if len(self.calls) == 1:
            raise NotImplementedError(f"{rival} is not installed, or cannot do it")
        for call in self.calls.values():
            call()

    def track_ratio(self, case, target, rival):
        seconds = measure(self.calls)
        return seconds.pop(OURS) / min(seconds.values())

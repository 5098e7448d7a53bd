"""What tests of several operators share: how parts are compared."""


def lists(parts):
    return [part.tolist() for part in parts]


def check_equal(parts, expected):
    assert [(part.shape, part.dtype) for part in parts] == [(p.shape, p.dtype) for p in expected]
    assert lists(parts) == lists(expected)

"""Test ids are equal in each run, so that parallel runners and reports can compare them."""


def test_no_id_contains_an_address(request):
    ids = [item.nodeid for item in request.session.items]
    assert not [name for name in ids if " at 0x" in name]

from unibio.core.protocols import Calls, count


def test_counts_never_wrap():
    assert int(count(3, 5)) == 15
    assert int(count(1000, 3_000_000)) == 2**31 - 1
    assert int(count(2, 2**40)) == 2**31 - 1
    assert int(count(0, 2**40)) == 0
    total = Calls(hvp=2**31 - 5).plus(Calls(hvp=10, grad_f=1))
    assert [int(c) for c in total] == [1, 0, 2**31 - 1, 0]

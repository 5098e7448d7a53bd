"""Whether arrays share memory: Python and compiled code call these functions.

Two arrays share a byte if a multiple of each stride, and a place in an item, sum to the distance
between the arrays. The multiples are limited by the extents, and the places by the item size::

    two columns of 8-byte items, of an array with rows of 72 bytes:
        a = x[0:4, 0:2],  b = x[0:3, 2:5]       distance 16
        72 * (-2 … 3)  +  8 * (-2 … 1)  +  (-7 … 7)  =  16     has no solution

So the search for shared memory tries the multiples of the largest stride first, and leaves out
those that the other terms cannot complete. For parts of one array, that is at most two at a time.

In Python, all sequences are lists or tuples. In compiled code, they are pointers; see
`splitjit._kernels.apart`. This module imports nothing of the package.
"""

from __future__ import annotations

from typing import Any, NamedTuple

APART, SHARED, UNSURE = range(3)

_MOST = (1 << 63) - 1


class Strided(NamedTuple):
    """Where an array with at least one element lies in memory.

    Attributes
    ----------
    low : int
        The lowest address of an item.
    nbytes : int
        The bytes of an item.
    dims : int
    extents, strides : sequence of int
        Of the dims, in any order. The strides may be negative.
    """

    low: int
    nbytes: int
    dims: int
    extents: Any
    strides: Any


class Terms(NamedTuple):
    """Working memory for a search, with an element for each term, largest step first.

    Attributes
    ----------
    steps, least, most : sequence of int
        The multiples of a step may be `least` to `most`.
    below, above : sequence of int
        What all later terms add, at least and at most.
    divisors : sequence of int
        The greatest common divisor of the steps from this term on.
    left, turns, last : sequence of int
        What is left of the distance for this term, the multiple that is tried next, and the last.
    """

    steps: Any
    least: Any
    most: Any
    below: Any
    above: Any
    divisors: Any
    left: Any
    turns: Any
    last: Any


def array_at(arrays: Any, i: int) -> Any:
    """Return one of several arrays."""
    return arrays[i]


def sort(numbers: Any, keys: Any, first: int, stop: int) -> None:
    """Sort the numbers from `first` to `stop` - 1 by their keys."""
    numbers[first:stop] = sorted(numbers[first:stop], key=keys.__getitem__)


def out_of_line() -> None:
    """Do nothing in Python. In compiled code, forbid inlining the calling function."""


def lowest(address: int, dims: int, extents: Any, strides: Any) -> int:
    """Return the lowest address of an array, given the address of its first element."""
    for d in range(dims):
        address += min((extents[d] - 1) * strides[d], 0)
    return address


def length_of(array: Strided, steps: int) -> int:
    """Return how many bytes an array spans if only strides smaller than `steps` count."""
    out_of_line()
    length = array.nbytes
    for d in range(array.dims):
        step = abs(array.strides[d])
        if step < steps:
            length += (array.extents[d] - 1) * step
    return length


# ---- one or two arrays -------------------------------------------------------------------


def add_term(terms: Terms, count: int, step: int, least: int, most: int) -> int:
    """Add a term to `count` others, in order; one with the same step grows. Return their number."""
    out_of_line()
    k = count
    while k > 0 and terms.steps[k - 1] < step:
        k -= 1
    if k > 0 and terms.steps[k - 1] == step:
        terms.least[k - 1] += least
        terms.most[k - 1] += most
        return count
    for i in range(count, k, -1):
        terms.steps[i] = terms.steps[i - 1]
        terms.least[i] = terms.least[i - 1]
        terms.most[i] = terms.most[i - 1]
    terms.steps[k], terms.least[k], terms.most[k] = step, least, most
    return count + 1


def search(
    terms: Terms, first: int, count: int, distance: int, low: int, high: int, work: int
) -> int:
    """Return `SHARED` if the terms from `first` on and a place sum to a distance.

    The place is `low` to `high`. After trying `work` multiples, return `UNSURE`.
    """
    out_of_line()
    below, above, divisor = low, high, 0
    for k in range(count - 1, first - 1, -1):
        step = terms.steps[k]
        terms.below[k], terms.above[k] = below, above
        below += terms.least[k] * step
        above += terms.most[k] * step
        while step:
            divisor, step = step, divisor % step
        terms.divisors[k] = divisor
    k, left = first, distance
    while True:
        if k < count:
            step, turn = terms.steps[k], terms.most[k] + 1
            if (left - low) % terms.divisors[k] <= high - low:
                turn = max(terms.least[k], -((terms.above[k] - left) // step))
            terms.left[k], terms.turns[k] = left, turn
            terms.last[k] = min(terms.most[k], (left - terms.below[k]) // step)
        else:
            if low <= left <= high:
                return SHARED
            k -= 1
        while k >= first and terms.turns[k] > terms.last[k]:
            k -= 1
        if k < first:
            return APART
        if work == 0:
            return UNSURE
        work -= 1
        left = terms.left[k] - terms.turns[k] * terms.steps[k]
        terms.turns[k] += 1
        k += 1


def overlaps_itself(array: Strided, terms: Terms, work: int) -> int:
    """Return whether two elements of an array share memory."""
    count = 0
    for d in range(array.dims):
        most = array.extents[d] - 1
        if most > 0:
            before, step = count, abs(array.strides[d])
            count = add_term(terms, count, step, -most, most)
            if step == 0 or count == before:  # two dims have the same step
                return SHARED
    for first in range(count):  # the first dim in which the indices of the elements differ
        terms.least[first] = 1
        last = array.nbytes - 1
        answer = search(terms, first, count, 0, -last, last, work)
        if answer != APART:
            return answer
    return APART


def share(a: Strided, b: Strided, terms: Terms, work: int) -> int:
    """Return whether two arrays share memory."""
    out_of_line()
    if a.low >= b.low + length_of(b, _MOST) or b.low >= a.low + length_of(a, _MOST):
        return APART
    count = 0
    for d in range(a.dims):
        if a.strides[d] and a.extents[d] > 1:
            count = add_term(terms, count, abs(a.strides[d]), 0, a.extents[d] - 1)
    for d in range(b.dims):
        if b.strides[d] and b.extents[d] > 1:
            count = add_term(terms, count, abs(b.strides[d]), 1 - b.extents[d], 0)
    return search(terms, 0, count, b.low - a.low, 1 - b.nbytes, a.nbytes - 1, work)


# ---- many arrays ---------------------------------------------------------------------------
#
# For parts of one array, the largest stride is the distance of two rows. If no part reaches from
# one row into the next, two parts can only share memory if their columns meet, and the same holds
# for the next stride. So parts are compared that meet in the dims where the fewest parts do:
#
#     low % rows       0      16     24     48     56      rows of 72 bytes
#     parts            |--a---|-b-|---c---|--d--|


def find_shared(
    arrays: Any, count: int, memory: Any, terms: Terms, work: int
) -> tuple[int, int, int]:
    """Return `APART`, or another answer and the two arrays that it is about.

    `memory` has three sequences to work with, with an element for each array.
    """
    out_of_line()
    order, places, _ = memory
    for i in range(count):
        order[i], places[i] = i, array_at(arrays, i).low
    sort(order, places, 0, count)
    first = 0
    while first < count:
        stop, end = first, places[order[first]] + 1
        while stop < count and places[order[stop]] < end:
            end = max(end, places[order[stop]] + length_of(array_at(arrays, order[stop]), _MOST))
            stop += 1
        steps = narrow(arrays, memory, first, stop)
        for k in range(first, stop):
            i = order[k]
            a = array_at(arrays, i)
            end = places[i] + length_of(a, steps)
            k += 1
            while k < stop and places[order[k]] < end:
                answer = share(a, array_at(arrays, order[k]), terms, work)
                if answer != APART:
                    return answer, i, order[k]
                k += 1
        first = stop
    return APART, 0, 0


def narrow(arrays: Any, memory: Any, first: int, stop: int) -> int:
    """Replace places by those in the dims where the fewest parts meet, and sort the parts by them.

    Return the step from which on strides do not matter for these places.
    """
    out_of_line()
    order, places, trial = memory
    steps = rows = _MOST
    fewest = count_meetings(arrays, order, places, first, stop, steps)
    for k in range(first, stop):
        trial[order[k]] = places[order[k]] - places[order[first]]
    while fewest:
        rows = largest_step(arrays, order, first, stop, rows)
        for k in range(first, stop):
            i = order[k]
            trial[i] = trial[i] % rows if rows else 0
            if trial[i] + length_of(array_at(arrays, i), rows) > rows:
                rows = 0
        if rows == 0:
            break
        sort(order, trial, first, stop)
        meetings = count_meetings(arrays, order, trial, first, stop, rows)
        if meetings < fewest:
            fewest, steps = meetings, rows
            for k in range(first, stop):
                places[order[k]] = trial[order[k]]
    sort(order, places, first, stop)
    return steps


def largest_step(arrays: Any, order: Any, first: int, stop: int, below: int) -> int:
    """Return the largest step below a limit, or 0."""
    largest = 0
    for k in range(first, stop):
        a = array_at(arrays, order[k])
        for d in range(a.dims):
            step = abs(a.strides[d])
            if largest < step < below and a.extents[d] > 1:
                largest = step
    return largest


def count_meetings(arrays: Any, order: Any, places: Any, first: int, stop: int, steps: int) -> int:
    """Return how many parts begin before the end of an earlier one."""
    out_of_line()
    count, end = 0, places[order[first]]
    for k in range(first, stop):
        i = order[k]
        if places[i] < end:
            count += 1
        end = max(end, places[i] + length_of(array_at(arrays, i), steps))
    return count

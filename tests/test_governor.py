"""The governor of parallel copies, on a simulated machine with a simulated clock."""

import os
import random
import threading

import pytest

from splitjit._copy import governor as module
from splitjit._copy import threads
from splitjit._copy.governor import Governor
from tests.processes import SPLIT, run

SIZES = {2_400_000: (75e-6, 45e-6), 11_000_000: (1.4e-3, 0.7e-3), 50_000_000: (16e-3, 8e-3)}
"""Seconds that one thread and two threads take, by number of bytes, on two idle cores."""
SLICE = 4e-3
"""Seconds of processor time after which the system runs another program."""
BUSY = [1, 2, 4]
"""How many programs keep two cores busy."""


class Machine:
    """Two cores, a clock, and programs beside this one.

    A parallel copy waits for a core that another program uses, until the program's time
    slice ends. One thread loses time slices only if all cores are busy.
    """

    cores = threads = 2

    def __init__(self, monkeypatch, seed=1):
        self.now = 0.0
        self.ran = 0.0  # seconds since the last time slice of another program
        self.random = random.Random(seed)
        self.busy = 0
        self.spikes = 0.0  # delays per second of copying
        self.pays = True  # whether two threads are faster than one
        self.parallel = self.calls = 0
        self.governor = Governor()
        monkeypatch.setattr(threads, "governor", self.governor)
        monkeypatch.setattr(threads, "perf_counter", lambda: self.now)
        monkeypatch.setattr(threads.THREADS, "run", self.kernel(False))
        monkeypatch.setattr(threads.THREADS, "run_parallel", self.kernel(True))
        monkeypatch.setattr(threads, "_allowed", lambda: (self.threads, ""))

    def time(self, nbytes, parallel):
        """Return how long a copy takes."""
        one, many = SIZES.get(nbytes, (nbytes * 30e-12, nbytes * 18e-12))
        work = (many if self.pays else 1.4 * one) if parallel else one
        work *= self.random.uniform(0.9, 1.1)
        late = 0.0
        if parallel and self.busy:  # a copy in a longer slice gets half of a core
            late = self.random.uniform(4e-3, 16e-3) + work
        crowd = self.busy + 1 - self.cores
        self.ran = self.ran + work if crowd > 0 else 0.0
        if self.ran > SLICE:
            late += self.ran // SLICE * crowd * self.random.uniform(3e-3, 5e-3)
            self.ran %= SLICE
        if self.random.random() < self.spikes * work:
            late += self.random.uniform(1e-3, 12e-3)
        return work + late

    def kernel(self, parallel):
        def kernel(loop, naps, tasks, *arguments):
            assert tasks == (self.threads if parallel else 1)
            self.now += self.time(self.nbytes, parallel)
            self.parallel += parallel

        return kernel

    def copy(self, nbytes, loop="copy"):
        """Return how long a copy takes that the governor decides about."""
        self.nbytes = nbytes
        self.calls += 1
        began = self.now
        threads.copy(loop, 0, nbytes, ())
        return self.now - began

    def copies(self, nbytes, seconds, pause=0.0):
        """Return how long the copies of some seconds take."""
        end, times = self.now + seconds, []
        while self.now < end:
            times.append(self.copy(nbytes))
            self.now += pause
        return times

    def others(self, nbytes, parallel, count=60_000):
        """Return how long copies take without the governor: all parallel, or none."""
        return [self.time(nbytes, parallel) for _ in range(count)]


class LargeMachine(Machine):
    """16 quiet cores that copy 12 times as fast as one."""

    cores = threads = 16

    def time(self, nbytes, parallel):
        work = nbytes * 30e-12 * self.random.uniform(0.9, 1.1)
        return work / 12 if parallel else work


def mean(times):
    return sum(times) / len(times)


def p99(times):
    return sorted(times)[int(0.99 * len(times))]


@pytest.fixture
def machine(monkeypatch):
    return Machine(monkeypatch)


@pytest.mark.parametrize("nbytes", SIZES)
@pytest.mark.parametrize("busy", BUSY)
def test_busy_cores_cost_no_more_than_one_thread(machine, nbytes, busy):
    for started_beside in [True, False]:
        machine.governor.forget()
        machine.busy = busy * started_beside
        machine.copies(nbytes, 1)
        machine.busy = busy
        times = machine.copies(nbytes, 10)
        one = machine.others(nbytes, parallel=False)
        assert mean(one) > 0.93 * mean(times)
        assert p99(times) < 3 * p99(one)


@pytest.mark.parametrize("nbytes", SIZES)
@pytest.mark.parametrize("busy", BUSY)
@pytest.mark.parametrize("seconds", [0.3, 10])
def test_full_speed_is_back_soon(machine, nbytes, busy, seconds):
    machine.copies(nbytes, 1)
    machine.busy = busy
    machine.copies(nbytes, seconds)
    machine.busy = 0
    machine.copies(nbytes, 1.5)
    full = mean(machine.others(nbytes, parallel=True))
    assert mean(machine.copies(nbytes, 1)) < 1.05 * full


@pytest.mark.parametrize("nbytes", SIZES)
def test_nothing_is_lost_on_a_quiet_machine(machine, nbytes):
    machine.copies(nbytes, 1)
    assert mean(machine.copies(nbytes, 10)) < 1.01 * mean(machine.others(nbytes, parallel=True))


@pytest.mark.slow
@pytest.mark.parametrize("nbytes", SIZES)
def test_lone_spikes_cost_little(machine, nbytes):
    machine.spikes = 0.5
    machine.copies(nbytes, 1)
    full = mean(machine.others(nbytes, parallel=True))
    assert mean(machine.copies(nbytes, 60)) < 1.03 * full


@pytest.mark.slow
def test_a_load_that_comes_and_goes(machine):
    nbytes = 2_400_000
    one = mean(machine.others(nbytes, parallel=False))
    for busy_for, idle_for in [(0.05, 0.05), (0.2, 0.2), (1, 1), (0.02, 0.5)]:
        times = []
        end = machine.now + 10
        while machine.now < end:
            machine.busy = 1
            times += machine.copies(nbytes, busy_for)
            machine.busy = 0
            times += machine.copies(nbytes, idle_for)
        assert mean(times) < 1.15 * one


def test_a_process_is_parallel_after_three_copies(machine):
    for _ in range(10):
        machine.copy(2_400_000)
    assert machine.parallel == 7


def test_rare_calls_do_not_stall_often(machine):
    machine.busy = 1
    times = machine.copies(2_400_000, 200, pause=0.1)
    assert sum(time > 4e-3 for time in times) <= 9


def test_a_stall_after_each_rest_pauses_nothing(machine):
    for _ in range(20):
        machine.copies(2_400_000, 0.05)
        machine.now += 0.04
        machine.busy = 1
        machine.copy(2_400_000)
        machine.busy = 0
    machine.parallel = machine.calls = 0
    machine.copies(2_400_000, 0.05)
    assert machine.parallel > 0.9 * machine.calls


def test_each_hundredth_copy_stalls(machine):
    time = machine.time

    def stalls(nbytes, parallel):
        return time(nbytes, parallel) + 2e-3 * (parallel and machine.random.random() < 0.01)

    machine.time = stalls
    times = machine.copies(2_400_000, 3)
    assert sum(time > 2e-3 for time in times) < 0.003 * len(times)


def test_a_stall_pauses_all_classes(machine):
    for _ in range(50):
        for nbytes in SIZES:
            machine.copy(nbytes, "copy")
            machine.copy(nbytes, "deinterleave")
    machine.busy, machine.parallel = 1, 0
    for _ in range(10):
        for nbytes in [2_400_000, 11_000_000]:
            machine.copy(nbytes, "copy")
            machine.copy(nbytes, "deinterleave")
    assert machine.parallel <= 3 + 2


def test_a_program_of_many_threads_makes_one_probe(machine):
    for _ in range(20):
        machine.copy(2_400_000)
    governor, nbytes = machine.governor, 2_400_000
    cell = governor.cells["copy"][nbytes.bit_length()]
    began, machine.now = machine.now, machine.now + 0.01
    for _ in range(8):  # as many threads as stall at once count as one stall
        governor.learn(cell, 2, True, nbytes, began, machine.now)
    for _ in range(2):
        assert governor.machine.debt <= 0
        governor.learn(cell, 2, True, nbytes, machine.now, machine.now + 0.01)
        machine.now += 0.01
    assert governor.machine.debt > 0
    end = machine.now + 5
    while cell.left <= 0 and machine.now < end:
        machine.copy(nbytes)
    assert cell.left == 1


@pytest.mark.slow
def test_a_class_in_which_threads_do_not_pay(machine):
    nbytes = 600_000
    machine.pays = False
    machine.copies(nbytes, 1)
    machine.parallel = machine.calls = 0
    machine.copies(nbytes, 5)
    assert machine.parallel < 0.001 * machine.calls
    machine.pays = True  # other classes go on meanwhile, and this one is tried again
    machine.parallel = machine.calls = 0
    machine.copies(2_400_000, 0.01)
    assert machine.parallel > 0.7 * machine.calls
    machine.copies(nbytes, 1.2)
    machine.parallel = machine.calls = 0
    machine.copies(nbytes, 1)
    assert machine.parallel > 0.99 * machine.calls


def test_programs_of_low_priority_pause_nothing_for_long(monkeypatch):
    machine = Machine(monkeypatch)
    machine.busy = 1
    machine.copies(2_400_000, 3)
    machine.time = lambda nbytes, parallel: 45e-6 if parallel else 75e-6
    machine.copies(2_400_000, module.LONGEST)
    machine.parallel = machine.calls = 0
    machine.copies(2_400_000, 1)
    assert machine.parallel > 0.9 * machine.calls


def test_the_first_copies_of_a_large_class_are_parallel(machine):
    machine.copy(1 << 28)
    assert machine.parallel == 1


def test_a_spike_in_the_first_copies_is_forgotten(machine):
    machine.spikes = 1e9
    machine.copy(2_400_000)
    machine.copy(2_400_000)
    machine.spikes = 0
    machine.copies(2_400_000, 0.1)
    machine.busy = 1
    times = machine.copies(2_400_000, 2)
    assert mean(times) < 1.1 * mean(machine.others(2_400_000, parallel=False))


def test_threads_race_without_errors():
    governor = Governor()
    errors = []

    def work(seed):
        clock = random.Random(seed)
        now = 0.0
        try:
            for _ in range(20_000):
                cell = governor.cells["copy"][clock.randrange(19, 30)]
                left = cell.left
                cell.left = left - 1 if left > 0 else min(left + 1, 0)
                began, now = now, now + clock.choice([0.0, 1e-5, 1e-4, 1e-2])
                governor.learn(cell, 2, left > 0, 1 << 20, began, now)
        except Exception as error:
            errors.append(error)

    started = [threading.Thread(target=work, args=(seed,)) for seed in range(8)]
    for thread in started:
        thread.start()
    for thread in started:
        thread.join()
    assert not errors


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="no forks here")
def test_a_forked_child_starts_afresh(tmp_path):
    code = """
from splitjit._copy.governor import governor

for _ in range(20):
    check()
assert governor.cells
governor.machine.begin(1.0)
child = os.fork()
if not child:
    os._exit(bool(governor.cells or governor.machine.debt))
assert os.waitpid(child, 0)[1] == 0
assert governor.cells and governor.machine.debt
"""
    run(tmp_path, SPLIT + code)


@pytest.mark.parametrize("nbytes", [5_000_000, 50_000_000])
def test_measurements_of_one_thread_cost_little_beside_16_threads(nbytes, monkeypatch):
    machine = LargeMachine(monkeypatch)
    machine.copies(nbytes, 1)  # the first measurements follow each other at short distances
    times = machine.copies(nbytes, 2)
    assert mean(times) < 1.02 * nbytes * 30e-12 / 12

"""A course keeps every lane busy for a while and remembers how long each call took."""

import asyncio
import time
from array import array
from collections.abc import Sequence
from typing import Final

from bench.load.channels import Lane
from bench.load.plan import Outcome, Plan
from testkit.procfs import cpu_seconds

# Calls in flight at the end may take this long before they count as lost.
_LAST_ANSWER_SECONDS: Final = 60.0


class Course:
    """One phase of load; a lane that fails is taken out, so that a dead peer cannot spin."""

    def __init__(self, lanes: Sequence[Lane], *, seconds: float, calls: int, give_up: bool = False) -> None:
        self.latencies = array("d")
        self.errors = 0
        self.given_up = 0
        self.first_error = ""
        self.elapsed = 0.0
        self._lanes = lanes
        self._seconds = seconds
        self._give_up = give_up
        self._calls_left = calls
        self._running = len(lanes)
        self._deadline = 0.0
        self._done = asyncio.get_running_loop().create_future()

    async def run(self) -> None:
        """Keep the lanes busy until the time or the calls are used up and every answer is in."""
        began = time.perf_counter()
        self._deadline = began + self._seconds
        for lane in self._lanes:
            lane.course = self
            self._calls_left -= 1
            lane.send()
        try:
            async with asyncio.timeout(self._seconds + (0.0 if self._give_up else _LAST_ANSWER_SECONDS)):
                await self._done
        except TimeoutError:
            if self._give_up:
                self.given_up = self._running
            else:
                self._fault(f"{self._running} calls were never answered", self._running)
        self.elapsed = time.perf_counter() - began

    def finished(self, lane: Lane, fault: str) -> None:
        """Count the answer and send the next call."""
        now = time.perf_counter()
        if fault:
            self._fault(fault, 1)
        else:
            self.latencies.append(now - lane.began)
            if now < self._deadline and self._calls_left > 0:
                self._calls_left -= 1
                lane.send()
                return
        self._running -= 1
        if not self._running and not self._done.done():
            self._done.set_result(None)

    def _fault(self, fault: str, count: int) -> None:
        self.errors += count
        self.first_error = self.first_error or fault


async def measure(lanes: Sequence[Lane], plan: Plan, pid: int) -> Outcome:
    """Warm up, then measure; the CPU of `pid` is read right before and right after the timed phase."""
    if plan.warm_up_seconds:
        warm_up = Course(lanes, seconds=plan.warm_up_seconds, calls=plan.calls)
        await warm_up.run()
        if warm_up.errors:
            return _outcome(warm_up, 0.0, 0.0)
    timed = Course(lanes, seconds=plan.seconds, calls=plan.calls, give_up=plan.give_up)
    own, cpu = time.process_time(), cpu_seconds(pid)
    await timed.run()
    return _outcome(timed, cpu_seconds(pid) - cpu, time.process_time() - own)


def failed(reason: str) -> Outcome:
    """The outcome of a measurement that could not begin."""
    return Outcome(
        calls=0,
        errors=1,
        given_up=0,
        first_error=reason,
        elapsed=0.0,
        cpu=0.0,
        generator_cpu=0.0,
        p50=0.0,
        p99=0.0,
    )


def _outcome(course: Course, cpu: float, generator_cpu: float) -> Outcome:
    ordered = sorted(course.latencies)
    return Outcome(
        calls=len(ordered),
        errors=course.errors,
        given_up=course.given_up,
        first_error=course.first_error,
        elapsed=course.elapsed,
        cpu=cpu,
        generator_cpu=generator_cpu,
        p50=percentile(ordered, 0.50),
        p99=percentile(ordered, 0.99),
    )


def percentile(ordered: Sequence[float], share: float) -> float:
    """The smallest value that at least `share` of the values do not exceed; 0 without values."""
    if not ordered:
        return 0.0
    return ordered[min(len(ordered) - 1, max(0, -int(-share * len(ordered) // 1) - 1))]

"""A caller of an upstream that works, to see whether it feels the trouble of the others."""

import contextlib
from collections.abc import AsyncIterator

from campaign.probe import watching
from campaign.trial import Trial
from testkit.async_gateway_process import AsyncGatewayProcess

# A healthy call takes milliseconds; this leaves room for a loaded machine and none for a timeout.
LATE_SECONDS = 0.5


@contextlib.asynccontextmanager
async def bystander(trial: Trial, gateway: AsyncGatewayProcess, tool: str) -> AsyncIterator[None]:
    """Call `tool` (an echo) until the block ends; then check that the trouble stayed where it was."""
    async with watching(gateway.port, gateway.pid, tool) as seen:
        yield
    trial.measure("others", seen.longest_seconds * 1000, "ms at most")
    trial.check(
        "other upstreams are unaffected",
        seen.asked > 0 and not seen.failures and seen.longest_seconds < LATE_SECONDS,
        f"{seen.failures} of {seen.asked} failed, longest {seen.longest_seconds:.3f} s",
    )

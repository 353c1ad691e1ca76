"""What tests, benchmarks, campaign and conformance share: servers, faults, clients, gateways as processes.

Comes in: a description of a server, a fault or a configuration. Goes out: a running one.
It imports `headgate` only for values, and nothing of the trees that use it.
"""

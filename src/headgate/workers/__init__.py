"""Confined child processes: a job and its content come in, a reply goes out.

`process_pool` (parent), `child` (child) and `worker_protocol` (socket) are the harness, which imports nothing
of Headgate. `worker_pool`, `result_jobs` and `sql` run jobs on large results with it; they may import
`results`, `search`, `schema`, `protocol` and `domain`.
"""

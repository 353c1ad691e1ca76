"""Composition: builds a gateway from its settings, runs it, and does the work of the commands.

In: `Settings`. Out: a running gateway, or the reports of commands. It alone imports several edges, and may
import everything but `cli` and `tx`; `wiring` opens the parts in order and closes them in reverse.
"""

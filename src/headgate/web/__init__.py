"""Pages for operators: health, readiness, metrics, listings and the start page.

In: method and path of a request, and functions that read the running parts. Out: status, content type, body.
It may import domain.
"""

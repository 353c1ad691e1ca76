"""Input requests of upstreams (elicitation, sampling, roots), bridged between the two eras.

In: a resolved call. Out: its result, or an `input_required` result that the client answers with its next
request. It may import protocol and domain.
"""

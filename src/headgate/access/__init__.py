"""Who a client is, what it may see and do: authenticators, visibility and limits.

In: credentials and identities. Out: an `Identity`, its `Visibility`, or an error that refuses the request.
It may import domain.
"""

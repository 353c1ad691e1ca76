"""The path of every request between the server side and the rules: calls, other requests, listings.

In: an `McpRequest`. Out: its `McpResponse`, or a HeadgateError with the next step for the client.
It may import access, catalog, results, delivery and input_requests, which it alone joins for a request.
"""

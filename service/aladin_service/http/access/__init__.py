"""Access control of the HTTP service: keys, scopes, rates, hosts, origins, and headers.

For routes: `request.state.key` is the `ApiKey` of the request (see `aladin_service.api_key`), None
without one; `rate_limits.charge` takes more than one request's worth; `audit.write_record` is the
line that a write leaves in the log. A new route needs a row in `control.NEEDED`, or nobody can
reach it.
"""

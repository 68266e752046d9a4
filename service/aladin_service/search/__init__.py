"""Search requests and answers of the service, as JSON and as text."""

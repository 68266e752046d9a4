"""The work behind the HTTP service: jobs, and the workers that do them beside the event loop."""

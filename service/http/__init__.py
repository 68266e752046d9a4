"""The HTTP service: ``service.http.app.create_app`` builds it."""

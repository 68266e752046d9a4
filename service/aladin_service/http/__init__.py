"""The HTTP service: ``aladin_service.http.app.create_app`` builds it."""

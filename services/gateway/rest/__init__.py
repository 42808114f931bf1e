"""The REST door: /api/v1, with its OpenAPI document. Handlers are in `routes/`."""

"""The dashboard: what the index says, as JSON and as a web app, on this machine and private.

`serving.serve` runs it; `application.build` makes the ASGI application. The app's source is in
`web/`; built files lie in `app/`.
"""

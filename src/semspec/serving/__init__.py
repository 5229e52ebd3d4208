"""The server: an OpenAI-compatible API over a draft, a target and their probes, and a page that shows who wrote what.

bundle.py says what is served, decoder.py answers one request, desk.py lines requests up, protocol.py has the shapes of
the API, app.py the routes, command.py the process. One answer at a time: the engines hold one text.
"""

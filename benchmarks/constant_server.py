"""Return the same bytes to every request, to measure the limit of the load generator.

uvicorn constant_server:app --port 8002
"""

BODY = b'{"scores":[{"reward":1.0,"components":{}}]}'
HEADERS = [(b"content-type", b"application/json"), (b"content-length", str(len(BODY)).encode())]


async def app(scope, receive, send):
    if scope["type"] != "http":
        return
    while (await receive()).get("more_body"):
        pass
    await send({"type": "http.response.start", "status": 200, "headers": HEADERS})
    await send({"type": "http.response.body", "body": BODY})

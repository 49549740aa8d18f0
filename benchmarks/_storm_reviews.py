"""An API server that reviews tokens and nothing else, in a process of its own.

``python -m benchmarks._storm_reviews SECONDS``: each answer takes that long. A token reads
``NODE/GENERATION``; every one is good and bound to its node.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys

AGENTS = "system:serviceaccount:wattpack-node:wattpack-agent"
NODE_CLAIM = "authentication.kubernetes.io/node-name"


def review(spec: dict[str, object]) -> dict[str, object]:
    """The status of a TokenReview."""
    node = str(spec["token"]).partition("/")[0]
    user = {"username": AGENTS, "groups": [], "extra": {NODE_CLAIM: [node]}}
    return {"status": {"authenticated": True, "user": user, "audiences": spec["audiences"]}}


async def serve(seconds: float) -> None:
    """Print the port, answer until standard input ends, print how many were answered."""
    count = [0]

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # Cancelled at the end, where nobody looks at how a connection ended.
        ended = (asyncio.IncompleteReadError, asyncio.CancelledError, ConnectionError)
        with contextlib.suppress(*ended):
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).lower()
                length = int(head.partition(b"content-length:")[2].split(b"\r\n")[0])
                body = json.loads(await reader.readexactly(length))
                await asyncio.sleep(seconds)
                data = json.dumps(review(body["spec"])).encode()
                count[0] += 1
                writer.write(b"HTTP/1.1 201 Created\r\nContent-Length: %d\r\n\r\n" % len(data))
                writer.write(data)
                await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await asyncio.to_thread(sys.stdin.read)
    print(count[0], flush=True)


if __name__ == "__main__":
    asyncio.run(serve(float(sys.argv[1])))

"""An asyncio web server that streams answers; whoever hangs up ends the generation.

Run: python web.py PORT, then: curl -N -d 'Good morning' http://localhost:PORT
Without a port it asks itself once.
"""

import asyncio
import sys

from mtlqwen import Engine

HEAD = "HTTP/1.1 200 OK\r\nContent-Type: text/plain; charset=utf-8\r\nConnection: close\r\n\r\n"


async def handle(
    engine: Engine, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
    """Answer one request: its body is what the user says."""
    try:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
        length = (
            int(head.split("content-length:")[1].split()[0]) if "content-length:" in head else 0
        )
        question = (await reader.readexactly(min(length, 1 << 16))).decode(errors="replace")
        writer.write(HEAD.encode())
        messages = [{"role": "user", "content": question}]
        async with engine.astream(messages, thinking=False, max_tokens=200) as stream:
            async for piece in stream:
                writer.write(piece.encode())
                await writer.drain()  # raises when the other side is gone
    except (ConnectionError, asyncio.IncompleteReadError):
        pass
    finally:
        writer.close()


async def ask(port: int, question: str) -> str:
    """Send one request, and return the body of the answer."""
    reader, writer = await asyncio.open_connection("localhost", port)
    writer.write(f"POST / HTTP/1.1\r\nContent-Length: {len(question)}\r\n\r\n{question}".encode())
    answer = (await reader.read()).decode().partition("\r\n\r\n")[2]
    writer.close()
    return answer


async def main() -> None:
    """Serve, for ever or for three questions of our own."""
    with Engine("tiny") as engine:
        port = int(sys.argv[1]) if len(sys.argv) > 1 else 0
        server = await asyncio.start_server(lambda *both: handle(engine, *both), "localhost", port)
        async with server:
            if port:
                await server.serve_forever()
            port = server.sockets[0].getsockname()[1]
            questions = ("Good morning", "Repeat after me: 335 157", "Repeat after me: 12")
            print("\n".join(await asyncio.gather(*(ask(port, one) for one in questions))))


asyncio.run(main())

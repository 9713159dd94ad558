"""What two processes must agree on byte for byte, and the sockets that carry it: RocketMQ's Remoting protocol.

A `Command` is a request or a response: a code, a number that pairs the two (`opaque`), a flat map of text fields and a
body. On the wire it is a frame: length, header (JSON or RocketMQ's binary form), body.

The wire format, from the bottom:
    codes       request and response codes, flags
    errors      the error tree, and what each error asks of the caller
    headers     one typed class per request and response (a room, by theme), and how they become text and back
    command     `Command`
    codec       a whole frame to a command and back (`codec_binary`: the binary header)
    framing     a stream of bytes to commands, without I/O
    bodies      what stands in bodies (a room, by theme; `fastjson` for what Java's fastjson writes)
    record      messages as they lie in the CommitLog and travel in pulls (`message`, `properties`, `msgid`, `javahash`)
    topics      names that mean something, and which names are allowed
    haframes    beside all that: what master and slave say to each other on the HA port

The sockets:
    limits      every bound of a connection, its unit, reason and answer
    connection  one TCP connection, the same on both sides: either may ask, either may answer
    waiting     our own requests until their answers come
    server      listens; one table request code -> handler
    client      calls by address; one connection each, made when needed

A handler is a plain function `(connection, request) -> reply`. It answers at once (a Command, or the bytes of a whole
frame), or parks the request (None) and answers later through the connection, or returns an awaitable that the server
runs as a task. What it raises becomes the answer: a CommandError its own code and remark, a HeaderError or anything
else SYSTEM_ERROR. A request without a handler gets REQUEST_CODE_NOT_SUPPORTED. One-way requests never get an answer.

Bytes that are no frame cost their sender the connection, and nobody else anything.
"""

/* NATS: lines of text; a JetStream server answers a publish to its reply subject. */

#include "rawload.h"

static struct bytes publish;
static size_t reply_at;

static size_t line_of(size_t from) {
    const unsigned char *end = memmem(in.at + from, in.end - from, "\r\n", 2);
    return end ? (size_t)(end - in.at) + 2 - from : 0;
}

static void nats_open(void) {
    size_t length;
    while (exchange(1), !(length = line_of(in.begin))) receive_some();
    if (strncmp((char *)in.at + in.begin, "INFO ", 5)) die("it does not greet as a NATS server does");
    in.begin += length;
    const char *hello = "CONNECT {\"verbose\":false,\"pedantic\":false,\"headers\":true,\"no_responders\":true,"
        "\"name\":\"rawload\",\"lang\":\"c\",\"version\":\"1\"}\r\nSUB _INBOX.rawload.* 1\r\n";
    put(hello, strlen(hello));
    send_some();
    char *head;
    int count = asprintf(&head, "PUB %s _INBOX.rawload.%d %zu\r\n", name, FIRST_ID, body_bytes);
    if (count < 0) die("no memory for a request");
    reply_at = strlen("PUB ") + strlen(name) + strlen(" _INBOX.rawload.");
    put(head, (size_t)count);
    put(body, body_bytes);
    put("\r\n", 2);
    publish = put_aside();
    free(head);
}

static void nats_request(void) {
    digits_of(publish.at + reply_at, FIRST_ID + take_id());
    put(publish.at, publish.end);
}

static void nats_answers(void) {
    size_t length;
    while (in.begin < in.end && (length = line_of(in.begin))) {
        const char *line = (const char *)in.at + in.begin;
        bool headed = !strncmp(line, "HMSG ", 5);
        if (headed || !strncmp(line, "MSG ", 4)) {
            const char *end = line + length - 2, *count = end, *id = memmem(line, length, ".rawload.", 9);
            while (count > line && count[-1] != ' ') count--;
            size_t payload = strtoul(count, NULL, 10);
            if (!id || payload > 1024 * 1024) die("an answer that nobody asked for: %.*s", (int)(end - line), line);
            if (in.end - in.begin < length + payload + 2) return;
            /* {"stream":…,"seq":…}; or "error"; or headers with 503 when nobody answers for the subject. */
            const char *said = line + length;
            bool good = !headed && memmem(said, payload, "\"seq\":", 6) && !memmem(said, payload, "\"error\"", 7);
            if (!good) note_error(said, payload);
            give_id(strtoul(id + 9, NULL, 10) - FIRST_ID, good);
            length += payload + 2;
        } else if (!strncmp(line, "PING", 4)) {
            put("PONG\r\n", 6);
        } else if (!strncmp(line, "-ERR", 4)) {
            die("the server said: %.*s", (int)length - 2, line);
        }
        in.begin += length;
    }
}

const struct protocol NATS = { "nats", 1, nats_open, nats_request, nats_answers };

/* AMQP 0-9-1: frames of type, channel, length, payload, 0xCE; a method's payload begins with class and method. */

#include "rawload.h"

#include <stdarg.h>

#define METHOD(kind, one) ((uint32_t)(kind) << 16 | (one))
static uint64_t next_tag = 1, lowest_tag = 1;
static struct bytes message;

static void put_text(const char *text) {
    put_number(strlen(text), 1);
    put(text, strlen(text));
}

static size_t begin_frame(int type, int channel) {
    put_number((uint64_t)type, 1);
    put_number((uint64_t)channel, 2);
    put_number(0, 4);
    return out.end;
}

static void end_frame(size_t began) {
    uint32_t length = htonl((uint32_t)(out.end - began));
    memcpy(out.at + began - 4, &length, 4);
    put("\xCE", 1);
}

/* A method of this client: its arguments as integers of so many bytes, as short texts ('s'), or tables ('t'). */
static void call(int channel, uint32_t method, const char *shape, ...) {
    va_list values;
    size_t began = begin_frame(1, channel);
    put_number(method, 4);
    va_start(values, shape);
    for (; *shape; shape++) {
        if (*shape == 's') put_text(va_arg(values, const char *));
        else if (*shape == 't') {
            struct bytes *table = va_arg(values, struct bytes *);
            put_number(table->end, 4);
            put(table->at, table->end);
        } else put_number(va_arg(values, uint32_t), *shape - '0');
    }
    va_end(values);
    end_frame(began);
}

static void amqp_closed(const unsigned char *arguments, size_t length) {
    size_t text = length > 2 ? arguments[2] : 0;
    die("the broker closes with %u: %.*s", (unsigned)number(arguments, 2),
        (int)(text + 3 <= length ? text : 0), (const char *)arguments + 3);
}

/* Waits for one method, and takes it from what came; returns its arguments. */
static const unsigned char *awaited(uint32_t method) {
    for (;;) {
        const unsigned char *frame = exchange(7);
        size_t length = number(frame + 3, 4);
        frame = exchange(length + 8);
        in.begin += length + 8;
        if (frame[0] != 1 || length < 4) continue;
        uint32_t found = (uint32_t)number(frame + 7, 4);
        if (found == METHOD(10, 50) || found == METHOD(20, 40)) amqp_closed(frame + 11, length - 4);
        if (found != method) die("the broker said %u.%u before what was awaited", found >> 16, found & 0xFFFF);
        return frame + 11;
    }
}

static struct bytes table_of(const char *text, size_t length) {
    struct bytes table = { .at = (unsigned char *)(uintptr_t)text, .end = length };
    return table;
}

static void amqp_open(void) {
    const char able[] = "\x0c""capabilitiesF\0\0\0\x22\x0a""basic.nackt\x01\x12""connection.blockedt\x01";
    const char kind[] = "\x0cx-queue-typeS\0\0\0\x06quorum\x1bx-quorum-initial-group-sizeI\0\0\0\x03";
    struct bytes properties = table_of(able, sizeof able - 1), arguments = table_of(kind, sizeof kind - 1);
    put("AMQP\0\0\x09\x01", 8);
    awaited(METHOD(10, 10));
    /* Mechanism, then the user and the password of a fresh broker, with their lengths before them. */
    size_t began = begin_frame(1, 0);
    put_number(METHOD(10, 11), 4);
    put_number(properties.end, 4);
    put(properties.at, properties.end);
    put_text("PLAIN");
    put("\0\0\0\x0c\0guest\0guest", 16);
    put_text("en_US");
    end_frame(began);
    const unsigned char *tune = awaited(METHOD(10, 30));
    uint32_t channels = (uint32_t)number(tune, 2), frame_max = (uint32_t)number(tune + 2, 4);
    if (!frame_max) frame_max = 131072;
    call(0, METHOD(10, 31), "242", channels, frame_max, 0);
    call(0, METHOD(10, 40), "ss1", "/", "", 0);
    awaited(METHOD(10, 41));
    call(1, METHOD(20, 10), "s", "");
    awaited(METHOD(20, 11));
    call(1, METHOD(50, 10), "2s1t", 0, name, 2 /* durable */, &arguments);
    awaited(METHOD(50, 11));
    call(1, METHOD(50, 30), "2s1", 0, name, 0);
    awaited(METHOD(50, 31));
    call(1, METHOD(85, 10), "1", 0);
    awaited(METHOD(85, 11));
    /* To the queue by the default exchange; mandatory, for what has no queue would be confirmed as well. */
    call(1, METHOD(60, 40), "2ss1", 0, "", name, 1);
    began = begin_frame(2, 1);
    put_number(60, 2);
    put_number(0, 2);
    put_number(body_bytes, 8);
    put_number(0x1000, 2);
    put_number(2, 1); /* delivery mode: persistent */
    end_frame(began);
    for (size_t done = 0; done < body_bytes;) {
        size_t part = body_bytes - done < frame_max - 8 ? body_bytes - done : frame_max - 8;
        began = begin_frame(3, 1);
        put(body + done, part);
        end_frame(began);
        done += part;
    }
    message = put_aside();
}

static void amqp_request(void) {
    uint64_t *slot = &left_ns[next_tag++ % TABLE];
    if (*slot) die("a publish waits for its confirm while %d later ones had theirs", TABLE);
    *slot = now_ns;
    put(message.at, message.end);
}

static void confirmed(const unsigned char *arguments, bool good) {
    uint64_t tag = number(arguments, 8);
    if (tag >= next_tag) die("a confirm of publish %" PRIu64 ", which was not sent", tag);
    for (uint64_t one = arguments[8] & 1 ? lowest_tag : tag; one <= tag; one++) {
        if (arguments[8] & 1 && !left_ns[one % TABLE]) continue;
        if (!good) note_error("nack", 4);
        answered(one % TABLE, good);
    }
    while (lowest_tag < next_tag && !left_ns[lowest_tag % TABLE]) lowest_tag++;
}

static void amqp_answers(void) {
    while (in.end - in.begin >= 8) {
        const unsigned char *frame = in.at + in.begin;
        size_t length = number(frame + 3, 4);
        if (length > 16 * 1024 * 1024) die("an answer is no AMQP frame");
        if (in.end - in.begin < length + 8) return;
        in.begin += length + 8;
        if (frame[0] != 1 || length < 4) continue;
        switch ((uint32_t)number(frame + 7, 4)) {
        case METHOD(60, 80): confirmed(frame + 11, true); break;
        case METHOD(60, 120): confirmed(frame + 11, false); break;
        case METHOD(60, 50): note_error("a message was returned: it has no queue", 39); break;
        case METHOD(10, 60): die("the broker blocks its publishers: %.*s", frame[11], (const char *)frame + 12);
        case METHOD(10, 50): case METHOD(20, 40): amqp_closed(frame + 11, length - 4);
        }
    }
}

const struct protocol AMQP = { "amqp", 1, amqp_open, amqp_request, amqp_answers };

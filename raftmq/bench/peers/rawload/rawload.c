/* A load of one shape for brokers of three protocols: W requests in flight on one connection, each answer checked.

   rawload PROTOCOL PORT NAME IN_FLIGHT BODY_BYTES LEAD_IN_S SECONDS

   PROTOCOL: rocketmq (Remoting frames with a JSON header, code 310, four queues in turn), rocketmq-pulls (code 11: 32
   messages each of what was sent before, the first 40,000 of each of the four queues again and again), nats (publish
   with a reply subject, which JetStream answers) or amqp (0-9-1 with publisher confirms, to a quorum queue that it
   declares and empties). NAME is the topic, subject or queue. The broker is on loopback.

   Standard output: the line "begin" when measuring begins, "end" when it ends, then one line of JSON. Whoever answers
   something that cannot be understood, or nothing at all for long, ends it with a sentence and exit code 1. */

#include "rawload.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdarg.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum {
    IN_FLIGHT_MAX = 65535,
    LATENCY_US_MAX = 30 * 1000 * 1000,
    READ_BYTES = 256 * 1024,
    SILENCE_S = 20, /* without any answer: given up */
};

struct bytes in, out;
const char *name;
size_t body_bytes;
unsigned char *body;
uint64_t left_ns[TABLE], now_ns;

static int peer;
static bool blocking = true;
static uint32_t free_ids[IN_FLIGHT_MAX], free_count;
static uint64_t under_way;

static bool measuring;
static uint64_t acknowledged, errors, longest_ns;
static uint32_t *latencies;
static char first_error[240];

void die(const char *text, ...) {
    va_list values;
    va_start(values, text);
    vfprintf(stderr, text, values);
    va_end(values);
    fputc('\n', stderr);
    exit(1);
}

static uint64_t clock_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static double used_s(void) {
    struct rusage used;
    getrusage(RUSAGE_SELF, &used);
    return (double)(used.ru_utime.tv_sec + used.ru_stime.tv_sec)
        + (double)(used.ru_utime.tv_usec + used.ru_stime.tv_usec) / 1e6;
}

/* Bytes to send and bytes that came. */

static unsigned char *room(struct bytes *buffer, size_t count) {
    if (buffer->begin == buffer->end) buffer->begin = buffer->end = 0;
    if (buffer->room - buffer->end < count && buffer->begin) {
        memmove(buffer->at, buffer->at + buffer->begin, buffer->end - buffer->begin);
        buffer->end -= buffer->begin;
        buffer->begin = 0;
    }
    if (buffer->room - buffer->end < count) {
        buffer->room = 2 * (buffer->end + count);
        buffer->at = realloc(buffer->at, buffer->room);
        if (!buffer->at) die("no memory for %zu bytes", buffer->room);
    }
    return buffer->at + buffer->end;
}

void put(const void *from, size_t count) {
    memcpy(room(&out, count), from, count);
    out.end += count;
}

void put_number(uint64_t value, int size) {
    unsigned char digits[8];
    for (int place = 0; place < size; place++) digits[place] = (unsigned char)(value >> 8 * (size - 1 - place));
    put(digits, (size_t)size);
}

uint64_t number(const unsigned char *from, int size) {
    uint64_t value = 0;
    while (size--) value = value << 8 | *from++;
    return value;
}

void send_some(void) {
    while (out.begin < out.end) {
        ssize_t sent = send(peer, out.at + out.begin, out.end - out.begin, MSG_NOSIGNAL);
        if (sent < 0 && errno == EINTR) continue;
        if (sent < 0 && errno == EAGAIN) return;
        if (sent < 0) die("the broker took no more: %s", strerror(errno));
        out.begin += (size_t)sent;
    }
}

void receive_some(void) {
    ssize_t got = recv(peer, room(&in, READ_BYTES), READ_BYTES, 0);
    if (got < 0 && errno == EAGAIN && blocking) die("no answer for %d s", SILENCE_S);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (got < 0) die("the broker's answers ended: %s", strerror(errno));
    if (got == 0) die("the broker closed the connection%s%s", *first_error ? ": " : "", first_error);
    in.end += (size_t)got;
}

/* Before the socket stops blocking: send what was put, and receive until so many bytes are there. */
const unsigned char *exchange(size_t count) {
    send_some();
    while (in.end - in.begin < count) receive_some();
    return in.at + in.begin;
}

/* What was put becomes a request that is put again and again. */
struct bytes put_aside(void) {
    struct bytes aside = out;
    memset(&out, 0, sizeof out);
    return aside;
}

/* Requests and their answers. */

void note_error(const void *text, size_t length) {
    errors++;
    if (*first_error) return;
    if (length >= sizeof first_error) length = sizeof first_error - 1;
    for (size_t place = 0; place < length; place++) {
        unsigned char one = ((const unsigned char *)text)[place];
        first_error[place] = one < ' ' || one > '~' || one == '\\' ? ' ' : one == '"' ? '\'' : (char)one;
    }
}

void answered(uint64_t id, bool good) {
    uint64_t began = id < TABLE ? left_ns[id] : 0;
    if (!began) die("an answer to request %" PRIu64 ", which is not under way", id);
    left_ns[id] = 0;
    under_way--;
    if (!measuring || !good) return;
    uint64_t took = now_ns - began, us = took / 1000;
    acknowledged++;
    latencies[us < LATENCY_US_MAX ? us : LATENCY_US_MAX - 1]++;
    if (took > longest_ns) longest_ns = took;
}

uint32_t take_id(void) {
    uint32_t id = free_ids[--free_count];
    left_ns[id] = now_ns;
    return id;
}

void give_id(uint64_t id, bool good) {
    answered(id, good);
    free_ids[free_count++] = (uint32_t)id;
}

void digits_of(unsigned char *place, uint32_t value) {
    for (int digit = 6; digit >= 0; digit--, value /= 10) place[digit] = (unsigned char)('0' + value % 10);
}

/* The load. */

static const struct protocol *const PROTOCOLS[] = { &ROCKETMQ, &PULLS, &NATS, &AMQP };

static void connect_to(int port) {
    struct sockaddr_in address = { .sin_family = AF_INET, .sin_port = htons((uint16_t)port) };
    struct timeval limit = { .tv_sec = SILENCE_S };
    int yes = 1;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    peer = socket(AF_INET, SOCK_STREAM, 0);
    if (peer < 0 || connect(peer, (struct sockaddr *)&address, sizeof address))
        die("nobody can be reached at port %d: %s", port, strerror(errno));
    setsockopt(peer, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    setsockopt(peer, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
}

static double percentile_ms(double share) {
    uint64_t wanted = (uint64_t)((double)acknowledged * share), seen = 0;
    for (size_t us = 0; us < LATENCY_US_MAX; us++)
        if ((seen += latencies[us]) > wanted) return (double)us / 1000;
    return (double)longest_ns / 1e6;
}

/* One turn: what is to be sent leaves, what came is counted; returns whether anything was answered. */
static bool turn_round(const struct protocol *with) {
    struct pollfd watched = { .fd = peer, .events = POLLIN };
    uint64_t before = under_way;
    send_some();
    if (out.begin < out.end) watched.events |= POLLOUT;
    poll(&watched, 1, 10);
    if (watched.revents & (POLLIN | POLLHUP | POLLERR)) receive_some();
    now_ns = clock_ns();
    with->answers();
    return under_way < before;
}

static void load(const struct protocol *with, uint32_t in_flight, double lead_in_s, double seconds) {
    uint64_t began, end, heard, lead_end;
    double used = 0, took = 0;
    bool done = false;
    for (uint32_t id = 0; id < in_flight; id++) free_ids[free_count++] = id;
    fcntl(peer, F_SETFL, fcntl(peer, F_GETFL) | O_NONBLOCK);
    blocking = false;
    now_ns = began = heard = clock_ns();
    lead_end = began + (uint64_t)(lead_in_s * 1e9);
    end = lead_end + (uint64_t)(seconds * 1e9);
    while (!done || under_way) {
        if (!done && !measuring && now_ns >= lead_end) {
            puts("begin");
            fflush(stdout);
            measuring = true;
            used = used_s();
            began = now_ns = clock_ns();
            end = began + (uint64_t)(seconds * 1e9);
        }
        if (measuring && now_ns >= end) {
            took = (double)(now_ns - began) / 1e9;
            used = used_s() - used;
            measuring = false;
            done = true;
            puts("end");
            fflush(stdout);
        }
        for (; !done && under_way < in_flight; under_way++) with->request();
        if (turn_round(with)) heard = now_ns;
        if (now_ns - heard > (uint64_t)SILENCE_S * 1000000000u)
            die("no answer for %d s, %" PRIu64 " requests wait%s%s", SILENCE_S, under_way,
                *first_error ? "; before, it said: " : "", first_error);
    }
    printf("{\"acknowledged\":%" PRIu64 ",\"errors\":%" PRIu64 ",\"first_error\":\"%s\",\"seconds\":%.6f,"
        "\"p50_ms\":%.3f,\"p99_ms\":%.3f,\"max_ms\":%.3f,\"client_busy\":%.4f}\n",
        acknowledged * with->messages, errors, first_error, took, acknowledged ? percentile_ms(0.50) : 0,
        acknowledged ? percentile_ms(0.99) : 0,
        (double)longest_ns / 1e6, took > 0 ? used / took : 0);
}

int main(int count, char **words) {
    const struct protocol *with = NULL;
    if (count != 8) die("rawload PROTOCOL PORT NAME IN_FLIGHT BODY_BYTES LEAD_IN_S SECONDS");
    for (size_t place = 0; place < sizeof PROTOCOLS / sizeof *PROTOCOLS; place++)
        if (!strcmp(words[1], PROTOCOLS[place]->name)) with = PROTOCOLS[place];
    long in_flight = atol(words[4]), bytes = atol(words[5]);
    if (!with) die("there is no protocol %s", words[1]);
    if (in_flight < 1 || in_flight > IN_FLIGHT_MAX || bytes < 1) die("1 to %d in flight, at least 1 byte", IN_FLIGHT_MAX);
    name = words[3];
    body_bytes = (size_t)bytes;
    body = malloc(body_bytes);
    latencies = calloc(LATENCY_US_MAX, sizeof *latencies);
    if (!body || !latencies) die("no memory");
    for (size_t place = 0; place < body_bytes; place++) body[place] = (unsigned char)"0123456789abcdef"[place % 16];
    connect_to(atoi(words[2]));
    with->open();
    load(with, (uint32_t)in_flight, atof(words[6]), atof(words[7]));
    return 0;
}

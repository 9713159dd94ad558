/* RocketMQ: int32 length, int32 length of the header (type JSON), header, body. Sends, and pulls of what was sent. */

#include "rawload.h"

#include <time.h>

enum {
    QUEUES = 4,
    PULL_COUNT = 32,
    PULLED = 40000, /* of each queue, from its begin; then anew */
    HEADER_ROOM = 1024,
};

static struct bytes frames[QUEUES];
static size_t opaque_at, turn;
static uint32_t offsets[QUEUES];

static void rocketmq_open(void) {
    for (int queue = 0; queue < QUEUES; queue++) {
        char *header;
        int length = asprintf(&header,
            "{\"code\":310,\"language\":\"JAVA\",\"version\":477,\"opaque\":%d,\"flag\":0,"
            "\"serializeTypeCurrentRPC\":\"JSON\",\"extFields\":{\"a\":\"rawload\",\"b\":\"%s\",\"c\":\"TBW102\","
            "\"d\":\"%d\",\"e\":\"%d\",\"f\":\"0\",\"g\":\"%lld\",\"h\":\"0\",\"i\":\"UNIQ_KEY\\u0001"
            "00000000000000000000000000000000\\u0002WAIT\\u0001true\\u0002\",\"j\":\"0\",\"k\":\"false\","
            "\"l\":\"16\",\"m\":\"false\"}}", FIRST_ID, name, QUEUES, queue, (long long)time(NULL) * 1000);
        if (length < 0) die("no memory for a header");
        put_number(4 + (size_t)length + body_bytes, 4);
        put_number((uint64_t)length, 4);
        put(header, (size_t)length);
        put(body, body_bytes);
        opaque_at = 8 + (size_t)(strstr(header, "\"opaque\":") - header) + strlen("\"opaque\":");
        frames[queue] = put_aside();
        free(header);
    }
}

static void rocketmq_request(void) {
    const struct bytes *frame = &frames[turn++ % QUEUES];
    digits_of(frame->at + opaque_at, FIRST_ID + take_id());
    put(frame->at, frame->end);
}

static long field(const unsigned char *header, size_t length, const char *key) {
    const unsigned char *found = memmem(header, length, key, strlen(key));
    if (!found) die("an answer's header lacks %s: %.*s", key, (int)(length < 200 ? length : 200), header);
    return strtol((const char *)found + strlen(key), NULL, 10);
}

static void take_answers(size_t body_least) {
    while (in.end - in.begin >= 8) {
        const unsigned char *frame = in.at + in.begin;
        size_t length = number(frame, 4), header = number(frame + 5, 3);
        if (frame[4] || length > 16 * 1024 * 1024 || header + 4 > length) die("an answer is no frame with a JSON header");
        if (in.end - in.begin < 4 + length) return;
        bool good = !field(frame + 8, header, "\"code\":");
        if (!good) {
            const unsigned char *remark = memmem(frame + 8, header, "\"remark\":", 9);
            const unsigned char *said = remark ? remark + 9 : frame + 8;
            note_error(said, header - (size_t)(said - (frame + 8)));
        } else if (length - 4 - header < body_least) {
            good = false;
            note_error("a pull brought less than it asked for", 37);
        }
        give_id((uint64_t)(field(frame + 8, header, "\"opaque\":") - FIRST_ID), good);
        in.begin += 4 + length;
    }
}

static void rocketmq_answers(void) {
    take_answers(0);
}

const struct protocol ROCKETMQ = { "rocketmq", 1, rocketmq_open, rocketmq_request, rocketmq_answers };

static void pulls_open(void) {
    if (strlen(name) > HEADER_ROOM / 4) die("the name of a topic of %zu characters", strlen(name));
}

static void pulls_request(void) {
    char header[HEADER_ROOM];
    size_t queue = turn++ % QUEUES;
    if (offsets[queue] + PULL_COUNT > PULLED) offsets[queue] = 0;
    int length = snprintf(header, sizeof header,
        "{\"code\":11,\"language\":\"JAVA\",\"version\":477,\"opaque\":%u,\"flag\":0,"
        "\"serializeTypeCurrentRPC\":\"JSON\",\"extFields\":{\"consumerGroup\":\"rawload\",\"topic\":\"%s\","
        "\"queueId\":\"%zu\",\"queueOffset\":\"%u\",\"maxMsgNums\":\"%d\",\"sysFlag\":\"4\",\"commitOffset\":\"0\","
        "\"suspendTimeoutMillis\":\"0\",\"subVersion\":\"0\",\"subscription\":\"*\",\"expressionType\":\"TAG\"}}",
        FIRST_ID + take_id(), name, queue, offsets[queue], PULL_COUNT);
    offsets[queue] += PULL_COUNT;
    put_number(4 + (size_t)length, 4);
    put_number((uint64_t)length, 4);
    put(header, (size_t)length);
}

static void pulls_answers(void) {
    take_answers(PULL_COUNT * body_bytes);
}

const struct protocol PULLS = { "rocketmq-pulls", PULL_COUNT, pulls_open, pulls_request, pulls_answers };

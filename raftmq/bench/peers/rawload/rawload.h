/* What the protocols and the load share; rawload.c says what this program is. */

#ifndef RAWLOAD_H
#define RAWLOAD_H

#define _GNU_SOURCE
#include <arpa/inet.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    FIRST_ID = 1000000, /* ids have seven digits, so that no request's length changes */
    TABLE = 1 << 20,    /* of departures; delivery tags of AMQP go round in it */
};

struct bytes { unsigned char *at; size_t begin, end, room; };

/* Makes the connection ready, before the socket stops blocking; puts one more request; takes whole answers. */
struct protocol {
    const char *name;
    unsigned messages; /* that an answer stands for */
    void (*open)(void), (*request)(void), (*answers)(void);
};

extern const struct protocol ROCKETMQ, PULLS, NATS, AMQP;

extern struct bytes in, out;
extern const char *name;
extern size_t body_bytes;
extern unsigned char *body;
extern uint64_t left_ns[TABLE]; /* when a request left; 0: none under way */
extern uint64_t now_ns;

_Noreturn void die(const char *text, ...) __attribute__((format(printf, 1, 2)));

void put(const void *from, size_t count);
void put_number(uint64_t value, int size);
uint64_t number(const unsigned char *from, int size);
void send_some(void);
void receive_some(void);
const unsigned char *exchange(size_t count);
struct bytes put_aside(void);

void note_error(const void *text, size_t length);
void answered(uint64_t id, bool good);
uint32_t take_id(void);
void give_id(uint64_t id, bool good);
void digits_of(unsigned char *place, uint32_t value);

#endif

/* A producer for selvedge-coproc, from nothing but docs/coprocessor.md: attaches, adds a stream,
 * and puts frames into the memory that it shares with the coprocessor.
 *
 * Usage: producer SOCKET HOST:PORT FRAMES PERIOD_US [die-while-writing]
 * Each frame is one packet of 100 bytes that begins with its number. "die-while-writing" writes
 * half of one more frame and waits to be killed.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

enum { PACKET = 100 };

static void fail(const char *what) {
    perror(what);
    exit(1);
}

static uint64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* Asks, and gives the answer's text and the descriptors beside it. */
static int ask(int control, const char *request, char *answer, size_t room, int fds[2]) {
    if (send(control, request, strlen(request), MSG_NOSIGNAL) < 0) fail("send");
    struct iovec part = {answer, room - 1};
    union {
        char bytes[CMSG_SPACE(2 * sizeof(int))];
        struct cmsghdr align;
    } space;
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1,
                             .msg_control = space.bytes, .msg_controllen = sizeof space.bytes};
    ssize_t got = recvmsg(control, &message, MSG_CMSG_CLOEXEC);
    if (got <= 0) fail("recvmsg");
    answer[got] = 0;
    if (!strstr(answer, "\"ok\":true")) {
        fprintf(stderr, "refused: %s\n", answer);
        exit(1);
    }
    struct cmsghdr *rights = CMSG_FIRSTHDR(&message);
    if (!rights) return 0;
    int count = (int)((rights->cmsg_len - CMSG_LEN(0)) / sizeof(int));
    memcpy(fds, CMSG_DATA(rights), (size_t)count * sizeof(int));
    return count;
}

static unsigned char *map(int fd, size_t *len) {
    struct stat about;
    if (fstat(fd, &about)) fail("fstat");
    *len = (size_t)about.st_size;
    void *memory = mmap(NULL, *len, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (memory == MAP_FAILED) fail("mmap");
    return memory;
}

static uint32_t u32_at(const unsigned char *memory, size_t at) {
    uint32_t value;
    memcpy(&value, memory + at, sizeof value);
    return value;
}

static uint64_t u64_at(const unsigned char *memory, size_t at) {
    uint64_t value;
    memcpy(&value, memory + at, sizeof value);
    return value;
}

struct descriptor {
    uint32_t seq;
    uint16_t packets;
    uint8_t kind, flags;
    uint32_t zero, len;
    uint64_t start, arrival, deadline, references, zeros[2];
};
_Static_assert(sizeof(struct descriptor) == 64, "a slot has 64 bytes");

int main(int argc, char **argv) {
    if (argc < 5) {
        fprintf(stderr, "usage: %s SOCKET HOST:PORT FRAMES PERIOD_US [die-while-writing]\n", argv[0]);
        return 2;
    }
    uint32_t frames = (uint32_t)strtoul(argv[3], NULL, 10);
    uint64_t period = strtoull(argv[4], NULL, 10) * 1000;

    int control = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    if (strlen(argv[1]) >= sizeof address.sun_path) return 2;
    strcpy(address.sun_path, argv[1]);
    if (connect(control, (struct sockaddr *)&address, sizeof address)) fail("connect");

    char request[512], answer[4096];
    int bell_fds[2], stream_fds[2];
    if (ask(control, "{\"v\":1,\"op\":\"attach\",\"name\":\"example\"}", answer, sizeof answer,
            bell_fds) != 2) return 1;
    snprintf(request, sizeof request,
             "{\"v\":1,\"op\":\"add\",\"stream\":{\"name\":\"example\",\"to\":\"%s\","
             "\"period_ns\":20000000,\"delay_ns\":10000000000,\"windows\":[[1,5]],"
             "\"ring\":64,\"pool\":16384}}", argv[2]);
    if (ask(control, request, answer, sizeof answer, stream_fds) != 1) return 1;
    const char *found = strstr(answer, "\"bit\":");
    unsigned bit = found ? (unsigned)strtoul(found + 6, NULL, 10) : 0;

    size_t bell_len, len;
    unsigned char *bell = map(bell_fds[0], &bell_len), *memory = map(stream_fds[0], &len);
    if (memcmp(bell, "SLVGBELL", 8) || memcmp(memory, "SLVGSTRM", 8)) return 1;
    if (u32_at(bell, 8) != 3 || u32_at(memory, 8) != 3) return 1;
    uint32_t slots = (uint32_t)u64_at(memory, 24);
    uint64_t pool_size = u64_at(memory, 32);
    unsigned char *ring = memory + u64_at(memory, 40), *pool = memory + u64_at(memory, 48);

    _Atomic uint32_t *ring_tail = (_Atomic uint32_t *)(ring + 128);
    _Atomic uint32_t *ring_head = (_Atomic uint32_t *)(ring + 256);
    _Atomic uint64_t *pool_tail = (_Atomic uint64_t *)pool;
    _Atomic uint64_t *pool_head = (_Atomic uint64_t *)(pool + 128);
    _Atomic uint32_t *state = (_Atomic uint32_t *)(bell + 128);
    _Atomic uint64_t *bits = (_Atomic uint64_t *)(bell + 256) + bit / 64;

    int dies = argc > 5;
    for (uint32_t n = 0; n < frames + (dies ? 1 : 0); n++) {
        /* Room: a slot, and a record of header and payload in one piece. */
        uint64_t payload = 2 + PACKET, record = 16 + (payload + 15) / 16 * 16;
        while (*ring_tail - atomic_load_explicit(ring_head, memory_order_acquire) >= slots)
            usleep(1000);
        uint64_t at = *pool_tail, to_end = pool_size - at % pool_size;
        if (record > to_end) at += to_end;
        while (at + record - atomic_load_explicit(pool_head, memory_order_acquire) > pool_size)
            usleep(1000);

        /* The payload: a length, then the packet. */
        unsigned char *bytes = pool + 256 + (at + 16) % pool_size;
        bytes[0] = PACKET;
        bytes[1] = 0;
        memset(bytes + 2, 0, PACKET);
        memcpy(bytes + 2, &n, sizeof n);
        if (dies && n == frames) {
            printf("writing\n");
            fflush(stdout);
            for (;;) pause();
        }
        atomic_store_explicit(pool_tail, at + record, memory_order_release);

        /* The descriptor, then the counter that publishes it. */
        struct descriptor it = {.seq = n, .packets = 1, .kind = 5, .len = (uint32_t)payload,
                                .start = at + 16, .arrival = now_ns()};
        uint32_t tail = *ring_tail;
        memcpy(ring + 384 + (size_t)(tail % slots) * 64, &it, sizeof it);
        atomic_store_explicit(ring_tail, tail + 1, memory_order_release);

        /* The doorbell. */
        atomic_fetch_or_explicit(bits, (uint64_t)1 << (bit % 64), memory_order_release);
        atomic_thread_fence(memory_order_seq_cst);
        if (atomic_load_explicit(state, memory_order_relaxed) != 2
            && atomic_exchange_explicit(state, 2, memory_order_acq_rel) == 1) {
            uint64_t one = 1;
            if (write(bell_fds[1], &one, sizeof one) < 0 && errno != EAGAIN) fail("write");
        }
        if (period) {
            struct timespec pause = {(time_t)(period / 1000000000), (long)(period % 1000000000)};
            nanosleep(&pause, NULL);
        }
    }
    printf("done\n");
    return 0;
}

/* A block server in C that uses the pools, with a thread for each client: blockd SOCKET FILE BUDGET_BYTES.
 * A request has 13 bytes: 'r' or 'w', offset, length (big endian). The reply to a read is the data; to a
 * write, one byte: 0 or 1 (failed). A client whose request cannot be served is disconnected. Prints the
 * pool statistics when standard input ends. */
#include "thermo_pool.h"
#include <endian.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define MAX_REQUEST (1 << 20)

static thermo_pools *pools;
static int disk;
struct client { int socket, number; };

/* Reads or writes exactly `len` bytes. */
static int transfer_all(int fd, void *data, size_t len, int writes)
{
    ssize_t now = 1;
    for (size_t done = 0; done < len && now > 0; done += now)
        now = writes ? write(fd, (char *)data + done, len - done) : read(fd, (char *)data + done, len - done);
    return now > 0 ? 0 : -1;
}

static int serve_request(int socket, thermo_pool *pool, const unsigned char *header)
{
    uint64_t offset;
    uint32_t len;
    memcpy(&offset, header + 1, 8);
    memcpy(&len, header + 9, 4);
    offset = be64toh(offset);
    len = be32toh(len);
    char status;
    /* Held only during the transfer. If the budget is used up, this waits, and so does the client. */
    thermo_buffer *buffer = thermo_pool_acquire(pool, len, -1);
    int failed;
    if (!buffer)
        return -1;
    if (header[0] == 'w') {
        failed = transfer_all(socket, thermo_buffer_data(buffer), len, 0);
        status = failed || pwrite(disk, thermo_buffer_data(buffer), len, offset) != (ssize_t)len;
        failed = failed || transfer_all(socket, &status, 1, 1);
    } else {
        failed = pread(disk, thermo_buffer_data(buffer), len, offset) != (ssize_t)len ||
                 transfer_all(socket, thermo_buffer_data(buffer), len, 1);
    }
    thermo_buffer_release(buffer);
    return failed ? -1 : 0;
}

static void *serve_client(void *argument)
{
    struct client client = *(struct client *)argument;
    free(argument);
    char name[32];
    unsigned char header[13];
    snprintf(name, sizeof name, "client%d", client.number);
    thermo_pool *pool = thermo_pool_open(pools, name, MAX_REQUEST);
    while (pool && !transfer_all(client.socket, header, sizeof header, 0) &&
           !serve_request(client.socket, pool, header))
        thermo_pool_end_batch(pool);
    thermo_pool_close(pool);
    close(client.socket);
    return NULL;
}

static void *accept_all(void *argument)
{
    for (int number = 0;; number++) {
        struct client *client = malloc(sizeof *client);
        pthread_t thread;
        *client = (struct client){accept(*(int *)argument, NULL, NULL), number};
        if (client->socket < 0 || pthread_create(&thread, NULL, serve_client, client))
            return NULL;
        pthread_detach(thread);
    }
}

int main(int argc, char **argv)
{
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    pthread_t thread;
    char text[16384];
    int listener = socket(AF_UNIX, SOCK_STREAM, 0);
    if (argc != 4 || (disk = open(argv[2], O_RDWR)) < 0 || !(pools = thermo_pools_new(strtoull(argv[3], NULL, 10))))
        return fprintf(stderr, "blockd SOCKET FILE BUDGET_BYTES\n"), 2;
    strncpy(at.sun_path, argv[1], sizeof at.sun_path - 1);
    if (bind(listener, (struct sockaddr *)&at, sizeof at) || listen(listener, 64) ||
        pthread_create(&thread, NULL, accept_all, &listener))
        return perror(argv[1]), 2;
    while (read(0, text, sizeof text) > 0)
        ;
    thermo_pools_report_pressure(pools);
    thermo_pools_metrics(pools, text, sizeof text);
    return printf("used %llu peak %llu\n%s", (unsigned long long)thermo_pools_used(pools),
                  (unsigned long long)thermo_pools_peak(pools), text) < 0;
}

/* Opens devices, and measures the room of kernels, through the device table. */
#ifndef MIRT_SIM_OPENING_H
#define MIRT_SIM_OPENING_H

static const mirt__opening *opening(int index, bool tf32) {
    static mirt__opening how;
    memset(&how, 0, sizeof how);
    how.index = index;
    how.tf32 = tf32;
    how.devices = 1;
    return &how;
}

/* A kernel's call, and the bytes of room that it asks for. */
typedef struct measured_call {
    void (*call)(const void *args, const mirt__where *where);
    const void *args;
    const mirt__where *where;
} measured_call;

static inline void measured_replay(void *arg) {
    const measured_call *c = (const measured_call *)arg;
    c->call(c->args, c->where);
}

static inline size_t measured_room(const mirt__backend *backend,
                                   void (*call)(const void *args, const mirt__where *where), const void *args,
                                   const mirt__where *where) {
    mirt__kernel_room room;
    measured_call c;
    memset(&room, 0, sizeof room);
    c.call = call;
    c.args = args;
    c.where = where;
    backend->measure(where->handle, measured_replay, &c, &room);
    return room.shared;
}

#endif

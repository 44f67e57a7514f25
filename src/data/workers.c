/* Threads that make samples, and the memory of each. */

#include "data.h"

/* >>the room of stages */

typedef struct mirt__room {
    const mirt_dataset *stage;
    void *block;
    size_t bytes;
} mirt__room;

struct mirt__work {
    mirt__room *room;
    int rooms;
};

MIRT__LIB mirt__work *mirt__work_create(void) {
    return (mirt__work *)mirt__calloc(1, sizeof(mirt__work));
}

MIRT__LIB void mirt__work_destroy(mirt__work *work) {
    for (int i = 0; work && i < work->rooms; i++) mirt__aligned_free(work->room[i].block);
    if (work) mirt__free(work->room);
    mirt__free(work);
}

MIRT__LIB void *mirt__work_room(mirt__work *work, const mirt_dataset *stage, size_t bytes) {
    int i = 0;
    while (i < work->rooms && work->room[i].stage != stage) i++;
    if (i == work->rooms) {
        if (!mirt__grow((void **)&work->room, (size_t)i, (size_t)i + 1, sizeof(mirt__room))) return NULL;
        memset(&work->room[i], 0, sizeof work->room[i]);
        work->room[i].stage = stage;
        work->rooms++;
    }
    mirt__room *room = &work->room[i];
    if (room->block && room->bytes >= bytes) return room->block;
    void *block = mirt__aligned_alloc(bytes ? bytes : 1);
    if (!block) return NULL;
    mirt__aligned_free(room->block);
    room->block = block;
    room->bytes = bytes;
    return block;
}

#ifndef TREE_UTIL_H
#define TREE_UTIL_H
/* A temporary tree of directories with images. Include after mirrortrain.h. */
#include "image_util.h"
#include "tap.h"

#include <sys/stat.h>
#include <unistd.h>

static char root[512];

TAP_UNUSED static const char *at_root(const char *name) {
    static char path[2][1024];
    static int turn;
    snprintf(path[turn ^= 1], sizeof path[0], "%s/%s", root, name);
    return path[turn];
}

/* Makes the directories that a file needs. */
TAP_UNUSED static void make_directories(const char *name) {
    char path[1024];
    for (const char *slash = strchr(name, '/'); slash; slash = strchr(slash + 1, '/')) {
        snprintf(path, sizeof path, "%s/%.*s", root, (int)(slash - name), name);
        mkdir(path, 0777);
    }
}

/* A BMP of `shade` + 3 i in pixel i of its rows; size 0: no bytes at all. */
TAP_UNUSED static void put(const char *name, int width, int height) {
    static unsigned char file[IMAGE_MOST];
    make_directories(name);
    image_write_file(at_root(name), file, width ? image_write_bmp(file, width, height) : 0);
}

TAP_UNUSED static void start_tree(const char *name) {
    snprintf(root, sizeof root, "%s/mirt_directory_%ld_%s", tap_tmpdir(), (long)getpid(), name);
    mkdir(root, 0777);
}

TAP_UNUSED static void remove_tree(void) {
    char command[600];
    snprintf(command, sizeof command, "rm -rf '%s'", root);
    if (system(command) != 0) printf("# %s stays\n", root);
}

TAP_UNUSED static mirt_image_directory_desc small_desc(void) {
    mirt_image_directory_desc desc;
    memset(&desc, 0, sizeof desc);
    desc.height = 2;
    desc.width = 3;
    desc.no_shuffle = true;
    desc.batch_size = MIRT_NO_BATCH;
    return desc;
}

/* Whether opening fails with this status and a sentence that has these words. */
TAP_UNUSED static bool refused(const char *directory, const mirt_image_directory_desc *desc, mirt_status status,
                               const char *words) {
    mirt_dataset *dataset = mirt_image_dataset_from_directory(directory, desc);
    bool failed = !dataset && mirt_last_status() == status && strstr(mirt_last_error(), words) != NULL;
    mirt_dataset_destroy(dataset);
    return failed;
}

#endif

/* Trains all scenes in the processes of mpirun: mpi_scenes PHOTOS DEVICES OUT [SHARES]. */
/* Each process writes what it has to OUT.NUMBER.of.PROCESSES in the end; - for PHOTOS writes them, and prints where. */
#define MIRRORTRAIN_IMPLEMENTATION
#include "mirrortrain.h"

#include "scenes.h"

static void print_record(FILE *to, const scene *s, const record *r) {
    fprintf(to, "%s: status %d %s, weights %016llx, predictions %016llx", s->name, r->status, r->error,
           (unsigned long long)r->weights, (unsigned long long)r->predictions);
    fprintf(to, ", loss %a %a, accuracy %a %a, evaluated %a, steps %lld\n", r->loss, r->val_loss, r->accuracy,
           r->val_accuracy, r->evaluated, (long long)r->steps);
}

int main(int argc, char **argv) {
    if (argc > 1 && strcmp(argv[1], "-") == 0) return write_photos(), printf("%s\n", photo_dir) < 0;
    if (argc < 4) return fprintf(stderr, "usage: mpi_scenes PHOTOS DEVICES OUT [SHARES]\n"), 2;
    const layout own = {1, atoi(argv[2]), argc > 4 ? argv[4] : NULL};
    static record r[SCENES];
    int trained = 0; /* the first scene that is not refused, and so knows the number of this process */
    char path[400];
    snprintf(photo_dir, sizeof photo_dir, "%s", argv[1]);
    draw_images();
    for (int i = 0; i < SCENES; i++) run_scene(&scenes[i], &own, &r[i]);
    while (trained < SCENES && r[trained].status != MIRT_OK) trained++;
    if (trained == SCENES) return 1;
    snprintf(path, sizeof path, "%s.%d.of.%d", argv[3], r[trained].index, r[trained].workers);
    FILE *to = fopen(path, "w");
    for (int i = 0; i < SCENES && to; i++) print_record(to, &scenes[i], &r[i]);
    return !to || fclose(to) != 0;
}

#ifndef MIRRORTRAIN_SCALING_H
#define MIRRORTRAIN_SCALING_H
/* mirrortrain scaling: what its files share. */
#include "cli.h"

/* --- scaling_point.c --- */
/* A point of scaling. */
typedef struct point {
    int devices, threads; /* threads per device; 0: the strategy's default */
    int64_t batch;        /* global */
    bool prefetch;
    bool spread;          /* also times single steps */
    int processes;        /* of those started together, the first ones; 0: this is a process alone */
} point;
/* The times of single steps. */
typedef struct step_spread {
    int64_t steps;
    double deviation; /* standard deviation, as a share of the mean */
    double usual;     /* the same of steps that nothing interrupts: from the 16th to the 84th percentile, if normal */
    double tail;      /* 95th percentile, divided by the median */
} step_spread;
typedef struct answer {
    int status; /* exit status of the process that measured */
    mirt_timing timing;
    step_spread spread;
    double bytes; /* of gradients */
    int64_t images; /* of an epoch */
} answer;
/* Images of an epoch of generated ones: those of MNIST, and of cats and dogs. */
enum { DIGITS = 60000, PHOTOS = 25000 };
/* Measures in this process; returns an exit status. */
int run_point(const options *o, const point *p, answer *out);
double step_of(const answer *a); /* mean seconds of a step */

/* --- scaling.c --- */
/* Measures in a process of its own. */
answer ask(const options *o, const point *p);
/* Fills an empty list of --device-counts with 1, 2, 4, ... up to `most`. */
void choose_counts(batches *counts, int most);
int largest_count(const batches *counts); /* of numbers that increase */
/* Whether the numbers of --device-counts increase; false after complaining. */
bool counts_increase(const batches *counts);
/* The number of GPUs, or of cores if there are no GPUs or MIRT_DEVICES asks for cores; 0 after a complaint. */
int count_devices(bool *gpus);

/* --- scaling_group.c --- */
/* How many processes a launcher started, which have joined; 0 after complaining. */
int join_processes(void);
/* Strategies created from now on are of the first `count` processes; 0: of all. */
void limit_processes(int count);
/* The bytes of the first process go to all of the first `count`. False after complaining. */
bool tell_processes(void *data, size_t bytes, int count);
/* All processes wait for each other, however long it takes; returns the worst of their exit statuses. */
int meet_processes(int status);
/* How many of the processes run on the host of this one. */
int processes_of_host(void);
/* What messages between the first and the last process take, measured by these two with this many bytes; of use in the
   first. False after complaining. */
typedef struct network {
    char name[16];
    double gbit;    /* 10^9 bits per second, each way */
    double latency; /* seconds of a message */
} network;
bool measure_link(size_t bytes, network *out);

/* One number of every process, in the first; [processes]. False after complaining. */
bool gather_numbers(double own, double *out);

/* --- shares.c --- */
/* "3,1": small whole numbers in proportion to the speeds. False: they are nearly equal, or do not fit. */
bool propose_shares(const double *speed, int count, char *out, size_t size);

/* --- scaling_processes.c --- */
/* scaling of several processes. */
int run_process_scaling(const options *o);

/* --- scaling_model.c --- */
/* A name such as 10G, or Gbit/s, with or without a latency; false after complaining. */
bool parse_network(const char *text, network *out);
/* Training with the same batch on each of many devices, synchronously. */
typedef struct scaling_case {
    double step;       /* seconds of one device */
    double bytes;      /* of gradients */
    int per_host;      /* devices */
    network link;      /* of a host */
    double local_gbit; /* between the devices of a host; 0: not counted */
    double jitter;     /* standard deviation of a device's step, as a share of it */
    double overlap;    /* share of the backward pass that can hide the exchange */
} scaling_case;
typedef struct scaling_guess {
    double step, exchange; /* seconds */
    double exposed;        /* of the exchange, */
    double waiting;        /* for the slowest device: both are parts of the step */
} scaling_guess;
scaling_guess guess_step(const scaling_case *c, int devices);
/* The step of one device if that of `devices` takes `seconds`. */
double step_alone(const scaling_case *c, int devices, double seconds);
/* Images per second of `devices`, as a share of `devices` times those of one. */
double guess_efficiency(const scaling_case *c, int devices);
/* The two numbers that the model takes from published tables. */
typedef struct scaling_fit {
    double jitter, overlap;
} scaling_fit;
#define FITTED_JITTER 0.036
#define FITTED_OVERLAP 0.90
enum { PREDICTION_BAND = 15, PUBLISHED_SOURCES = 3 }; /* points of efficiency either way */
typedef struct published_point {
    int source;
    const char *model;
    double batch, megabytes; /* images of a device; gradients */
    int reference;           /* number of devices to compare with, */
    double rate;             /* and images per second of these together */
    int devices, per_host;
    double gbit;
    double result; /* images per second; up to 1: the efficiency */
} published_point;
extern const char *const published_sources[PUBLISHED_SOURCES];
extern const published_point published[];
extern const int published_count;
double published_efficiency(const published_point *p);
double guess_published(const published_point *p, const scaling_fit *fit);
/* Root mean square of the errors in points; `without`: a source that is left out, or -1. */
double error_of_fit(const scaling_fit *fit, int without);
scaling_fit fit_published(int without);

/* --- scaling_predict.c --- */
/* What scaling --predict starts from. */
typedef struct calibration {
    answer own;         /* measured */
    int devices;        /* on this many devices */
    int64_t batch;      /* of each device */
    int per_host;
    network link;
    double local_gbit;
} calibration;
/* Parses --network and checks that flags of --predict come with it; false after complaining. */
bool check_prediction(const options *o, network *link);
int measure_prediction(const options *o, const network *link);
void print_prediction(const options *o, const calibration *from);

#endif

/* The program mirrortrain: selects the command named on the command line. */
#include "posix.h"
#include "cli.h"

#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const command commands[] = {
    {"doctor", "check whether this machine is ready for a run; status 1 if it is not", CMD_DOCTOR, "[DIR]",
     "  mirrortrain doctor                          check this machine\n"
     "  mirrortrain doctor data/cats-vs-dogs        and the photographs there\n",
     run_doctor},
    {"devices", "list the devices of this machine", CMD_DEVICES, NULL,
     "  mirrortrain devices\n",
     run_devices},
    {"fit", "train a network on digits or photographs", CMD_FIT, NULL,
     "  mirrortrain fit                                            digits: MNIST, or drawn ones\n"
     "  mirrortrain fit --devices 2 --replicas 4                   four replicas on two devices\n"
     "  mirrortrain fit --model mobilenet_v2 --data DIR --run RUN --report\n"
     "                                                             photographs; RUN has all output\n"
     "  mirrortrain fit --model mobilenet_v2 --weights FILE --freeze base --data DIR --save FILE\n"
     "                                                             transfer learning\n",
     run_fit},
    {"evaluate", "loss and accuracy of a saved model on the test files", CMD_EVALUATE, NULL,
     "  mirrortrain evaluate --load model.safetensors --data DIR --confusion matrix.png\n",
     run_evaluate},
    {"predict", "classify images with a saved model", CMD_PREDICT, "IMAGE|DIR...",
     "  mirrortrain predict --load model.safetensors photo.jpg\n"
     "  mirrortrain predict --load model.safetensors --format csv DIR >classes.csv\n",
     run_predict},
    {"export", "write a model as an ONNX file for other programs", CMD_EXPORT, NULL,
     "  mirrortrain export --load model.safetensors --onnx model.onnx\n"
     "  mirrortrain export --model resnet50 --init resnet50.safetensors --onnx resnet50.onnx --channels-first\n",
     run_export},
    {"verify", "find images that cannot be decoded", CMD_VERIFY, "DIR",
     "  mirrortrain verify DIR\n",
     run_verify},
    {"augment", "write a contact sheet of augmented images", CMD_AUGMENT, "[DIR]",
     "  mirrortrain augment DIR --augment flip,rotation:0.1 --out sheet.png\n",
     run_augment},
    {"summary", "a network's layers, parameters, operations and memory", CMD_SUMMARY, NULL,
     "  mirrortrain summary --model resnet50 --batch 32\n",
     run_summary},
    {"scaling", "speed-up by more devices, and what limits it", CMD_SCALING, NULL,
     "  mirrortrain scaling --model mobilenet_v2                 by devices of this machine\n"
     "  mirrortrain scaling --model mobilenet_v2 --data DIR      with your photographs\n"
     "  mirrortrain scaling --model resnet50 --predict 64 --network 25G\n"
     "  mpirun -n 4 mirrortrain scaling                          by processes\n",
     run_scaling},
    {"report", "make a page about a run from its log, or one that compares several", CMD_REPORT, "DIR...",
     "  mirrortrain report runs/a                                writes runs/a/report.html\n"
     "  mirrortrain report runs/1gpu runs/4gpu --out compared.html\n",
     run_report},
    {"bench", "images per second, memory and where the time goes", CMD_BENCH, NULL,
     "  mirrortrain bench --model mobilenet_v2 --batch 1,32 --profile\n"
     "  mirrortrain bench --model resnet50 --forward --batch 1\n"
     "  mirrortrain bench --model resnet50 --batch 64 --parallelism --cores 64 --sockets 2 --bandwidth 200\n",
     run_bench},
    {"graph", "the training step as text, before and after mirroring", CMD_GRAPH, NULL,
     "  mirrortrain graph --replicas 3 --devices 2\n"
     "  mirrortrain graph --model mobilenet_v2 --svg step.svg\n",
     run_graph},
};
const int command_count = (int)(sizeof commands / sizeof commands[0]);

/* Prints a line with a single call, so that lines of threads do not mix. */
static void print_line(FILE *out, const char *before, const char *format, va_list args) {
    va_list again;
    va_copy(again, args);
    const int length = vsnprintf(NULL, 0, format, again);
    va_end(again);
    char *text = length >= 0 ? (char *)malloc((size_t)length + 1) : NULL;
    if (text) vsnprintf(text, (size_t)length + 1, format, args);
    const size_t size = mirt_printable(text, NULL, 0) + 1;
    char *shown = text ? (char *)malloc(size) : NULL;
    if (shown) mirt_printable(text, shown, size);
    fprintf(out, "%s%s\n", before, shown ? shown : "out of memory");
    free(shown);
    free(text);
}

void complain(const char *format, ...) {
    char begin[48] = "mirrortrain: ";
    va_list args;
    if (!may_complain()) return;
    if (!is_first()) snprintf(begin, sizeof begin, "mirrortrain: process %d: ", own_number());
    va_start(args, format);
    fflush(stdout);
    print_line(stderr, begin, format, args);
    va_end(args);
}

void note(const char *format, ...) {
    va_list args;
    if (!is_first()) return;
    va_start(args, format);
    print_line(stderr, "", format, args);
    va_end(args);
}

void tell(const char *format, ...) {
    va_list args;
    va_start(args, format);
    print_line(stdout, "", format, args);
    va_end(args);
}

void print_json_text(FILE *file, const char *text) {
    putc('"', file);
    for (const unsigned char *at = (const unsigned char *)text; *at; at++) {
        const bool c1 = at[0] == 0xC2 && at[1] >= 0x80 && at[1] < 0xA0; /* same as in the library's logger */
        if (c1) at++;
        if (c1 || *at < 32 || *at == 127 || *at == '"' || *at == '\\') fprintf(file, "\\u%04x", *at);
        else putc(*at, file);
    }
    putc('"', file);
}

const char *library_sentence(void) {
    const char *text = mirt_last_error();
    size_t name = strspn(text, "abcdefghijklmnopqrstuvwxyz0123456789_");
    return strncmp(text, "mirt_", 5) == 0 && strncmp(text + name, ": ", 2) == 0 ? text + name + 2 : text;
}

char *without_calls(const char *text, const char *cache) {
    static const char call[] = " (mirt_", cached[] = " (mirt_cache)";
    const size_t size = strlen(text) + 1, most = size / (sizeof cached - 1);
    const size_t room = size + (cache ? most * (strlen(cache) + 3) : 0);
    char *out = (char *)malloc(room);
    size_t used = 0;
    while (out && *text) {
        const char *end = strncmp(text, call, sizeof call - 1) == 0 ? strchr(text, ')') : NULL;
        if (end && cache && strncmp(text, cached, sizeof cached - 1) == 0)
            used += (size_t)snprintf(out + used, room - used, " (%s)", cache);
        if (end) text = end + 1;
        else out[used++] = *text++;
    }
    if (out) out[used] = 0;
    return out;
}

/* Whether the first process says the same. What ends all processes is said once, but what is the matter with the group
   may be that the first one is missing. */
static bool first_says_so(void) {
    const char *text = mirt_last_error();
    if (is_first() || mirt_last_status() != MIRT_E_WORKER) return false;
    if (joined_others()) return strstr(text, " has stopped: ") != NULL;
    return own_launch()->mpi && !strstr(text, " has not joined "); /* by TCP each sees something else */
}

int complain_of_library(void) {
    if (!first_says_so()) complain("%s", library_sentence());
    return EXIT_FAILED;
}

static const command *find_command(const char *name) {
    const char *names[sizeof commands / sizeof commands[0]];
    for (int i = 0; i < command_count; i++) {
        if (strcmp(commands[i].name, name) == 0) return &commands[i];
        names[i] = commands[i].name;
    }
    const char *like = nearest(name, names, command_count);
    if (like) complain("there is no command %s; did you mean %s?", name, like);
    else complain("there is no command %s; `mirrortrain --help` lists them", name);
    return NULL;
}

static bool is_help(const char *word) {
    return strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0 || strcmp(word, "help") == 0;
}

/* Of several processes: whether this one takes part in the command. */
static bool takes_part(const command *c, const options *o) {
    const bool compares = c->bit == CMD_SCALING && !o->strategy; /* with one, devices of a process are compared */
    if (c->bit == CMD_DOCTOR) return work_together(), true;
    if (!(c->bit & (CMD_FIT | CMD_EVALUATE | CMD_BENCH)) && !compares) {
        setenv("MIRT_WORKERS", "1", 1); /* the first one does it by itself */
        return is_first();
    }
    if (!o->strategy || chosen(o->strategy, "multi-worker") || chosen(o->strategy, "parameter-server"))
        work_together();
    else work_alone();
    return true;
}

int main(int argc, char **argv) {
    hold_streams();
    signal(SIGXFSZ, SIG_IGN); /* then a write beyond the file size limit fails with an error */
    bool several;
    const bool launched = find_launcher(&several);
    if (argc < 2) {
        if (is_first()) print_help(stderr);
        return EXIT_USAGE;
    }
    int status = EXIT_OK;
    if (!is_first() && (is_help(argv[1]) || argv[1][0] == '-')) {
        return EXIT_OK;
    } else if (is_help(argv[1]) && argc > 2) { /* help COMMAND is COMMAND --help */
        const command *c = find_command(argv[2]);
        if (!c) return EXIT_USAGE;
        print_command_help(c);
    } else if (is_help(argv[1])) {
        print_help(stdout);
    } else if (strcmp(argv[1], "--version") == 0) {
        printf("mirrortrain %s\n", mirt_version());
    } else {
        options o;
        const command *c = find_command(argv[1]);
        if (!c || !parse_flags(c, argc, argv, &o)) return EXIT_USAGE;
        if (!launched && !o.help) return complain_of_library();
        if (!o.help && !processes_fit(&o, several)) return EXIT_USAGE;
        if (several && (o.help ? !is_first() : !takes_part(c, &o))) return EXIT_OK;
        if (!o.help && o.winograd && rounds_products(&o))
            note("winograd: no effect with --dtype bf16 and fp16, whose 3x3 convolutions are not transformed");
        if (o.help) print_command_help(c);
        else status = c->run(&o);
    }
    if (fflush(stdout) != 0 || ferror(stdout)) {
        complain("stdout cannot be written");
        return status == EXIT_OK ? EXIT_FAILED : status;
    }
    return status;
}

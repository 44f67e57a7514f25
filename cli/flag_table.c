/* The flags of all commands, in the groups and order of --help. */
#include "flag_table.h"

#include <stddef.h>

#define TRAINS (CMD_FIT | CMD_EVALUATE | CMD_SUMMARY | CMD_GRAPH)
#define MODEL (CMD_FIT | CMD_SUMMARY | CMD_GRAPH | CMD_BENCH | CMD_SCALING | CMD_EXPORT)
#define STRATEGY (TRAINS | CMD_BENCH | CMD_PREDICT)
#define ALL (CMD_DEVICES | STRATEGY | CMD_VERIFY | CMD_AUGMENT | CMD_DOCTOR | CMD_REPORT | CMD_SCALING | CMD_EXPORT)
#define AT(field) offsetof(options, field)
#define MAX_REPLICAS 4096 /* same as in the library */
#define MAX_THREADS 1024

#define ON_DEVICES \
    "one copy of the weights per device (default), or one for all devices; one-device: all replicas on one"
#define ON_PROCESSES \
    "multi-worker: all processes that a launcher started train one model together, the default of several unless " \
    "MIRT_WORKERS=1 is set"

#define GROUP(title) {NULL, NULL, FLAG_SWITCH, 0, 0, 0, title}
#define OR_NAME(kind, name, kernel) "|" #name
const flag flags[] = {
    GROUP("Model"),
    {"model", "NAME", FLAG_TEXT, 0, AT(model), MODEL,
     "the network: mnist (default), mobilenet_v2, mobilenet_v3_small, mobilenet_v3_large, resnet18, resnet34, "
     "resnet50, resnet101, vgg16, efficientnet_v2_b0 to b3, s, m, l"},
    {"size", "N", FLAG_COUNT, 8192, AT(size), MODEL | CMD_AUGMENT,
     "image height and width; default 224, or the network's default"},
    {"alpha", "A", FLAG_NUMBER, 0, AT(alpha), MODEL, "width multiplier of mobilenet_v2 and mobilenet_v3; default 1"},
    {"classes", "N", FLAG_COUNT, INT32_MAX, AT(classes), MODEL,
     "number of classes; default 1000, for mnist 10; fit counts the classes of photographs itself"},
    {"no-top", NULL, FLAG_SWITCH, 0, AT(no_top), MODEL & ~(CMD_FIT | CMD_SCALING), "without the classification layers"},
    {"pooling", "avg|max|none", FLAG_NAME, 0, AT(pooling), MODEL & ~CMD_SCALING,
     "pooling at the end of a network without its top, or before a head; default avg"},
    {"load", "FILE", FLAG_TEXT, 0, AT(load), CMD_EVALUATE | CMD_PREDICT | CMD_EXPORT, "a model written by fit --save"},
    {"weights", "FILE", FLAG_TEXT, 0, AT(weights), CMD_FIT,
     "weights of the network without its top, named as in Keras: .safetensors"},
    {"freeze", "base", FLAG_TEXT, 0, AT(freeze), CMD_FIT,
     "train only the head; or freeze the layers whose names begin like this: \"block_1*\""},
    {"head", "LIST", FLAG_TEXT, 0, AT(head), CMD_FIT,
     "layers between pooling and classes: 512,dropout:0.5 is a dense layer of 512 units and dropout"},
    {"init", "FILE", FLAG_TEXT, 0, AT(init), CMD_FIT | CMD_EXPORT, "initial weights by name, from a .safetensors file"},
    {"dtype", "float32|bf16|store-bf16|fp16", FLAG_NAME, 0, AT(dtype),
     CMD_FIT | CMD_SUMMARY | CMD_GRAPH | CMD_BENCH | CMD_SCALING,
     "dtype of the operands of convolutions and of stored images: bf16 is the policy mixed_bfloat16; store-bf16, "
     "store_bfloat16, only stores them so; fp16, for GPUs, mixed_float16; default float32"},
    {"winograd", NULL, FLAG_SWITCH, 0, AT(winograd), CMD_FIT | CMD_EVALUATE | CMD_BENCH | CMD_SCALING,
     "faster 3x3 convolutions in float32, with different rounding"},
    GROUP("Data"),
    {"data", "DIR", FLAG_TEXT, 0, AT(data), CMD_FIT | CMD_EVALUATE,
     "for mnist: the directory of its four files, plain or .gz, default data/mnist; for other networks: a directory "
     "with a subdirectory of photographs for each class or with .tar shards in WebDataset's layout, or with train/ and "
     "validation/ that contain these, or the shards' names, default data/cats-vs-dogs. Without data: drawn digits or "
     "animals"},
    {"data", "DIR", FLAG_TEXT, 0, AT(data), CMD_SCALING,
     "measure with these samples, as of fit, decoded and resized anew in every epoch; default generated ones"},
    {"validation", "DIR", FLAG_TEXT, 0, AT(validation), CMD_FIT, "photographs of the same classes, for validation"},
    {"validation-split", "F", FLAG_SHARE, 0, AT(validation_split), CMD_FIT,
     "or this share of the photographs in --data; default 0.2"},
    {"validation-split", "F", FLAG_SHARE, 0, AT(validation_split), CMD_EVALUATE,
     "for photographs: evaluate only those that fit held out with this share and --seed; default all"},
    {"augment", "LIST", FLAG_TEXT, 0, AT(augment), CMD_FIT | CMD_AUGMENT,
     "augmentation of the training photographs, such as flip,rotation:0.1,zoom:0.1 (augment's default): flip or "
     "flip:horizontal, rotation:TURNS, "
     "zoom:SHARE, translation:SHARE, contrast:SHARE, brightness:SHARE, shear:SHARE, hue:SHARE, saturation:LOW:HIGH "
     "(0.5 is none), erasing:CHANCE and gaussian_blur:CHANCE (each image draws its own up to this; 0.5:0.5 is a half), "
     "grayscale:CHANCE, rand_augment, color_jitter:B:C:S:H, perspective:SCALE, aug_mix, clahe, "
     "elastic_transform:SCALE, sharpness:SHARE, posterization:BITS, equalization, auto_contrast, "
     "crop:SIZE, center_crop:SIZE, resizing:SIZE"},
    {"mix-up", "ALPHA", FLAG_NUMBER, 0, AT(mix_up), CMD_FIT,
     "mix each training photograph and its label with another one (MixUp), the more the larger; at most 1, often 0.2"},
    {"cut-mix", "FACTOR", FLAG_NUMBER, 0, AT(cut_mix), CMD_FIT,
     "replace a part of each training photograph by that of another one (CutMix); at most 1, which is usual"},
    {"corrupt", "fail|skip|zero", FLAG_NAME, 0, AT(corrupt), CMD_FIT | CMD_EVALUATE,
     "how to handle photographs that cannot be decoded; default fail"},
    {"no-cache", NULL, FLAG_SWITCH, 0, AT(no_cache), CMD_FIT,
     "decode photographs in every epoch, even if they fit into 1 GiB"},
    {"no-shuffle", NULL, FLAG_SWITCH, 0, AT(no_shuffle), CMD_FIT, "take the samples in the order of the files"},
    {"seed", "S", FLAG_SEED, 0, AT(seed), CMD_EVALUATE, "the seed given to fit, for --validation-split; default 0"},
    {"seed", "S", FLAG_SEED, 0, AT(seed), CMD_FIT | CMD_AUGMENT,
     "seed of all random numbers: initial weights, shuffling, augmentation; default 0"},
    GROUP("Training"),
    {"epochs", "N", FLAG_COUNT, INT32_MAX, AT(epochs), CMD_FIT, "passes over the data; default 5"},
    {"batch", "GLOBAL", FLAG_COUNT, INT32_MAX, AT(batch), TRAINS,
     "samples per step, over all replicas together; default 64, for photographs 32"},
    {"batch", "N[,N...]", FLAG_BATCHES, INT32_MAX, AT(batch_list), CMD_BENCH | CMD_SCALING,
     "global batches, each measured in its own process; default 32"},
    {"accumulate", "K", FLAG_COUNT, 4096, AT(accumulate), CMD_FIT,
     "accumulate the gradients of K batches per step; default 1"},
    {"optimizer", &(MIRT_OPTIMIZER_LIST(OR_NAME))[1], FLAG_NAME, 0, AT(optimizer), CMD_FIT, "default adam"},
    {"lr", "RATE", FLAG_RATES, 0, AT(lr), CMD_FIT,
     "learning rate; default 0.001, for sgd 0.01; 0.002,3:0.0002 changes it from epoch 3 on, counted from 0;"
     " cosine:0.01,warmup:200,alpha:0.1 rises for 200 steps and falls over all others (or steps:N);"
     " exponential:0.01,rate:0.9 multiplies it by 0.9 per epoch (or steps:N; staircase:1); "
     "polynomial:0.01,power:2,end:0; restarts:0.01,steps:N,t_mul:2,m_mul:1;"
     " ramp:0.0004,start:1e-5,epochs:5,sustain:0,decay:0.8,min:1e-5 changes it per epoch"},
    {"weight-decay", "D", FLAG_NUMBER, 0, AT(weight_decay), CMD_FIT,
     "shrink the weights by this times the learning rate every step; default 0, for adamw 0.004"},
    {"clip-norm", "N", FLAG_NUMBER, 0, AT(clip_norm), CMD_FIT,
     "scale the gradients down if the norm of all of them together exceeds this"},
    {"ema", "M", FLAG_NUMBER, 0, AT(ema), CMD_FIT,
     "end with exponential moving averages of the weights, with this momentum: 0.99"},
    {"swap-ema", NULL, FLAG_SWITCH, 0, AT(swap_ema), CMD_FIT,
     "with --ema: validate, and save checkpoints of whole epochs, with the averages"},
    {"label-smoothing", "E", FLAG_NUMBER, 0, AT(label_smoothing), CMD_FIT,
     "in the loss, spread this share of each label evenly over all classes; often 0.1"},
    {"early-stopping", "N", FLAG_COUNT, INT32_MAX, AT(early_stopping), CMD_FIT,
     "stop when val_loss has not improved for N epochs, and restore the weights of the best epoch"},
    {"max-steps", "N", FLAG_COUNT, INT32_MAX, AT(max_steps), CMD_FIT,
     "stop after N steps, counted from the beginning of the run"},
    {"metrics", "LIST", FLAG_TEXT, 0, AT(metrics), CMD_FIT | CMD_EVALUATE,
     "metrics besides accuracy, such as top5,precision,recall,f1,auc,pr_auc"},
    {"on-nan", "ignore|warn|stop", FLAG_NAME, 0, AT(on_nan), CMD_FIT,
     "when a loss is not finite: ignore it (default), name the layer and continue (warn), or stop before the weights "
     "change (stop)"},
    GROUP("Devices and processes"),
    {"strategy", "mirrored|central-storage|one-device", FLAG_NAME, 0, AT(strategy), CMD_SCALING,
     ON_DEVICES},
    {"strategy", "mirrored|central-storage|one-device|multi-worker|parameter-server", FLAG_NAME, 0, AT(strategy),
     CMD_FIT,
     ON_DEVICES "; " ON_PROCESSES "; "
     "parameter-server: they train it without waiting for each other, which is not reproducible"},
    {"strategy", "mirrored|central-storage|one-device|multi-worker", FLAG_NAME, 0, AT(strategy), STRATEGY & ~CMD_FIT,
     ON_DEVICES "; " ON_PROCESSES},
    {"devices", "P|LIST", FLAG_TEXT, 0, AT(devices), STRATEGY,
     "a number of devices to split the cores into, auto: one per socket, or cores by name: cpu:0,cpu:1; default one"
     " device with all cores"},
    {"replicas", "V", FLAG_COUNT, MAX_REPLICAS, AT(replicas), STRATEGY,
     "logical replicas, at least one per device; default one per device"},
    {"threads", "N", FLAG_COUNT, MAX_THREADS, AT(threads), STRATEGY | CMD_SCALING,
     "threads per device; default its number of cores"},
    {"shares", "N,N...", FLAG_TEXT, 0, AT(shares), CMD_FIT | CMD_EVALUATE | CMD_BENCH,
     "what each device, or each process, gets of the replicas, as 3,1; default equal shares; any give the same bits"},
    {"collective", "auto|tree|ring|one-device|nccl", FLAG_NAME, 0, AT(collective), STRATEGY | CMD_SCALING,
     "how gradients are summed; default auto, the tree; nccl: NCCL's own all-reduce, between GPUs"},
    {"average-every", "K", FLAG_COUNT, INT32_MAX, AT(average_every), CMD_FIT,
     "several processes train on their own, and average their weights every K steps (local SGD); not reproducible on "
     "other numbers of processes"},
    {"servers", "S", FLAG_COUNT, 1024, AT(servers), CMD_FIT,
     "with --strategy parameter-server: how many of the processes keep weights; default 1"},
    {"max-staleness", "K", FLAG_BOUND, INT32_MAX, AT(max_staleness), CMD_FIT,
     "with --strategy parameter-server: most updates by others while a worker computes its own; default any number"},
    {"timeout", "SECONDS", FLAG_NUMBER, 0, AT(timeout), CMD_FIT,
     "stop when a device or the input makes no progress for this long; default 60"},
    GROUP("Measurement"),
    {"device-counts", "N[,N...]", FLAG_BATCHES, 32, AT(device_counts), CMD_SCALING,
     "numbers of devices to compare; default 1, 2, 4, ... up to the number of cores; several processes: of these, up "
     "to all"},
    /* for its child processes */
    {"point", "DEVICES,THREADS,BATCH,PREFETCH,SPREAD,FD", FLAG_TEXT, 0, AT(point), CMD_SCALING, NULL},
    {"price", "PER_HOUR", FLAG_NUMBER, 0, AT(price), CMD_SCALING,
     "price of the machine per hour; shows what an epoch costs"},
    {"predict", "N", FLAG_COUNT, 1000000, AT(predict), CMD_SCALING,
     "images per second of up to N devices with --batch images each, by a model that starts from what one takes here"},
    {"network", "NAME|GBIT", FLAG_TEXT, 0, AT(network), CMD_SCALING,
     "for --predict, what connects hosts: 10G (default), 25G, 100G, ib, nvlink, or Gbit/s with a latency: 40G:20us; "
     "several processes: as measured between them"},
    {"devices-per-host", "N", FLAG_COUNT, 1024, AT(devices_per_host), CMD_SCALING,
     "for --predict; default the number of GPUs of this machine, or 1"},
    {"steps", "N", FLAG_COUNT, INT32_MAX, AT(steps), CMD_BENCH,
     "steps to take the median of; default all that --seconds leaves time for, at least 5"},
    {"seconds", "N", FLAG_COUNT, 86400, AT(seconds), CMD_BENCH | CMD_SCALING,
     "time to measure for; default 3, for scaling 2 per point"},
    {"forward", NULL, FLAG_SWITCH, 0, AT(forward), CMD_BENCH, "measure predicting instead of training steps with Adam"},
    {"feed", NULL, FLAG_SWITCH, 0, AT(feed), CMD_BENCH,
     "send the batch to the devices in every step; without, GPUs keep it"},
    {"profile", NULL, FLAG_SWITCH, 0, AT(profile), CMD_BENCH | CMD_FIT,
     "time each operation and compare it with the machine's peak (bench: in separate steps)"},
    {"parallelism", NULL, FLAG_SWITCH, 0, AT(parallelism), CMD_BENCH,
     "predict a step on more cores from the times of its tasks on one core, and show what limits it: serial work, "
     "unequal tasks, barriers and memory"},
    {"cores", "N[,N...]", FLAG_BATCHES, MAX_THREADS, AT(core_counts), CMD_BENCH,
     "with --parallelism: numbers of cores, ascending; default 1,2,4,8,16,32,64"},
    {"bandwidth", "GB/S", FLAG_NUMBER, 0, AT(bandwidth), CMD_BENCH,
     "with --parallelism: memory bandwidth of a socket; default that of this machine, which may have fewer cores"},
    {"sockets", "N", FLAG_COUNT, 64, AT(sockets), CMD_BENCH,
     "with --parallelism: sockets that the largest number of cores fills; fewer cores are on fewer; default 1"},
    {"barrier", "MICROSECONDS", FLAG_NUMBER, 0, AT(barrier), CMD_BENCH,
     "with --parallelism: time to start and end a parallel loop; default as measured on this machine"},
    {"check", NULL, FLAG_SWITCH, 0, AT(check), CMD_BENCH,
     "with --parallelism: compare predictions with steps on 1, 2, 4, 8 and 16 cores, if the machine has so many"},
    {"json", NULL, FLAG_SWITCH, 0, AT(json), CMD_BENCH, "with --parallelism: print all numbers as JSON"},
    {"memory", "SIZE", FLAG_BYTES, 0, AT(memory), CMD_SUMMARY,
     "memory of a device, such as 800M or 8G, to find the largest batch that fits; default the free memory"},
    {"costs", NULL, FLAG_SWITCH, 0, AT(costs), CMD_GRAPH,
     "list the tensors instead: stored, lazy (computed while they are read) or computed twice, their bytes, and the "
     "cost "
     "of each choice"},
    GROUP("Output"),
    {"run", "DIR", FLAG_TEXT, 0, AT(run), CMD_FIT,
     "keep all output of the run in DIR: ckpt_STEP.safetensors after every epoch, log.jsonl"},
    {"checkpoint-every", "STEPS", FLAG_COUNT, INT32_MAX, AT(checkpoint_every), CMD_FIT,
     "with --run: write a checkpoint every STEPS steps, and when training ends"},
    {"keep", "K", FLAG_COUNT, INT32_MAX, AT(keep), CMD_FIT, "with --run: how many checkpoints to keep; default 3"},
    {"resume", NULL, FLAG_SWITCH, 0, AT(resume), CMD_FIT,
     "with --run: resume from the newest intact checkpoint in DIR, bit-identical to a run without a break; without a "
     "checkpoint start over"},
    {"overwrite", NULL, FLAG_SWITCH, 0, AT(overwrite), CMD_FIT,
     "with --run: remove the checkpoints of an earlier run and start over"},
    {"report", NULL, FLAG_SWITCH, 0, AT(report), CMD_FIT,
     "with --run: write DIR/report.html, a page about the run, during training and at its end, then with its confusion "
     "matrix unless Ctrl-C ended it"},
    {"tensorboard", NULL, FLAG_SWITCH, 0, AT(tensorboard), CMD_FIT,
     "with --run: write event files to DIR/tensorboard; view them with tensorboard --logdir DIR/tensorboard"},
    {"save", "FILE", FLAG_TEXT, 0, AT(save), CMD_FIT,
     "write the trained model to FILE, as .safetensors; without --run also after Ctrl-C"},
    {"weights-only", NULL, FLAG_SWITCH, 0, AT(weights_only), CMD_FIT,
     "with --save: only the weights, for --init, --weights and other programs"},
    {"format", "text|csv|json", FLAG_NAME, 0, AT(format), CMD_PREDICT,
     "text (default): the class of each image; csv, json: the probabilities of all classes, too"},
    {"log-steps", NULL, FLAG_SWITCH, 0, AT(log_steps), CMD_FIT,
     "print the loss of every step instead of the progress line"},
    {"trace", "FILE", FLAG_TEXT, 0, AT(trace), CMD_FIT,
     "write a trace of what each device does, one row per device, for ui.perfetto.dev"},
    {"confusion", "FILE", FLAG_TEXT, 0, AT(confusion), CMD_EVALUATE, "write the confusion matrix as a picture: .png"},
    {"per-class", NULL, FLAG_SWITCH, 0, AT(per_class), CMD_EVALUATE,
     "print precision, recall, F1 and the number of images of each class"},
    {"onnx", "FILE", FLAG_TEXT, 0, AT(onnx), CMD_EXPORT, "the file to write: the model as it predicts, of opset 17"},
    {"channels-first", NULL, FLAG_SWITCH, 0, AT(channels_first), CMD_EXPORT,
     "images come in as (rows, channels, height, width); without, channels last"},
    {"keep-normalization", NULL, FLAG_SWITCH, 0, AT(keep_normalization), CMD_EXPORT,
     "batch normalization stays an operation of its own, and weights stay as they are; without, it is folded into "
     "convolutions and dense layers"},
    {"svg", "FILE", FLAG_TEXT, 0, AT(svg), CMD_GRAPH, "draw the graph as a picture in FILE instead"},
    {"out", "FILE", FLAG_TEXT, 0, AT(out), CMD_REPORT,
     "where to write the page that compares several runs; default comparison.html"},
    {"out", "FILE", FLAG_TEXT, 0, AT(out), CMD_AUGMENT, "the sheet, a .png"},
    {"originals", NULL, FLAG_SWITCH, 0, AT(originals), CMD_AUGMENT,
     "show three photographs, each with three augmented versions next to it, instead of twelve augmented ones"},
    {"help", NULL, FLAG_SWITCH, 0, AT(help), ALL, "show this"},
};
#undef OR_NAME
const int flag_count = (int)(sizeof flags / sizeof flags[0]);

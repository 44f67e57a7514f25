#ifndef GOLDEN_NETWORKS_H
#define GOLDEN_NETWORKS_H
/* Made by make_networks.py with TensorFlow 2.21.0, Keras 3.15.1; do not edit. */
#include <stdint.h>

#include "formula.h"

/* A network: `layers` is the FNV-1a hash of a line a layer, `weights` that of a line "name [shape]" a weight; the
   lines are written by layer_line and weight_line of make_networks.py. */
typedef struct golden_network {
    const char *name; /* for mirt_application */
    int size, classes, pooling, no_top;
    double alpha;
    const char *model;
    long long parameters, trained;
    int num_layers, num_weights;
    uint64_t layers, weights;
} golden_network;

/* A small one: weight number k is what golden_weight says, pixel i of golden_rows images golden_word(7, i) >> 24, labels
   number r is r % classes. Logits of inference; then the loss of training, in float64. */
#define GOLDEN_NETWORK_ROWS 4
#define GOLDEN_NETWORK_CLASSES 6
#define GOLDEN_NETWORK_SIZE 64
typedef struct golden_forward {
    const char *name;
    double alpha, gain, loss;
    double logits[GOLDEN_NETWORK_ROWS * GOLDEN_NETWORK_CLASSES];
} golden_forward;

static const golden_network golden_networks[] = {
    {"mobilenet_v2", 0, 1000, 0, 0, 1, "mobilenetv2_1.00_224", 3538984, 3504872, 155, 262, 0x4b4dc4030289da5cu, 0x5d97b884d1eb6d60u},
    {"mobilenet_v2", 32, 1000, 0, 1, 1, "mobilenetv2_1.00_32", 2257984, 2223872, 153, 260, 0x6ee66c2de6d0fcc6u, 0x178830ec875d5b0du},
    {"resnet50", 0, 1000, 0, 0, 1, "resnet50", 25636712, 25583592, 176, 320, 0xc6814cd77cd89688u, 0x589040c11a422844u},
    {"resnet50", 75, 1000, 0, 1, 1, "resnet50", 23587712, 23534592, 174, 318, 0x73845786aaaed874u, 0x4c25a93d5872cfc6u},
    {"efficientnet_v2_b0", 0, 1000, 0, 0, 1, "efficientnetv2-b0", 7200312, 7139704, 272, 361, 0x7ae444d00d754408u, 0x5f35bcf98dec3332u},
    {"efficientnet_v2_b0", 32, 1000, 0, 1, 1, "efficientnetv2-b0", 5919312, 5858704, 269, 359, 0xe18404ff47c57e0du, 0x5922380936b84fdbu},
    {"efficientnet_v2_b1", 0, 1000, 0, 0, 1, "efficientnetv2-b1", 8212124, 8141052, 336, 443, 0x3d117ed5dd93bfbbu, 0x770182186f739fb0u},
    {"efficientnet_v2_b1", 32, 1000, 0, 1, 1, "efficientnetv2-b1", 6931124, 6860052, 333, 441, 0x5a7f8e6316afffb0u, 0x198cacebb033bb7du},
    {"efficientnet_v2_b2", 0, 1000, 0, 0, 1, "efficientnetv2-b2", 10178374, 10096086, 351, 462, 0xddc6de5c562c2e15u, 0x8ff3404195650d57u},
    {"efficientnet_v2_b2", 32, 1000, 0, 1, 1, "efficientnetv2-b2", 8769374, 8687086, 348, 460, 0xa6a595a90122c2dcu, 0x936b776db573461au},
    {"efficientnet_v2_b3", 0, 1000, 0, 0, 1, "efficientnetv2-b3", 14467622, 14358406, 411, 538, 0xceff9b796b223952u, 0xd378b3befd1c0998u},
    {"efficientnet_v2_b3", 32, 1000, 0, 1, 1, "efficientnetv2-b3", 12930622, 12821406, 408, 536, 0x518fa5a9bee87451u, 0x9400bd50480b355du},
    {"efficientnet_v2_s", 0, 1000, 0, 0, 1, "efficientnetv2-s", 21612360, 21458488, 515, 672, 0x4e882f491686b33du, 0xc7090fa05085bab3u},
    {"efficientnet_v2_s", 32, 1000, 0, 1, 1, "efficientnetv2-s", 20331360, 20177488, 512, 670, 0xa830525ecf1ecb80u, 0x7c5f7b3a79002e84u},
    {"efficientnet_v2_m", 0, 1000, 0, 0, 1, "efficientnetv2-m", 54431388, 54139356, 742, 963, 0x5380f44d2fcebc82u, 0xa4d034046e671f54u},
    {"efficientnet_v2_m", 32, 1000, 0, 1, 1, "efficientnetv2-m", 53150388, 52858356, 739, 961, 0x2b64def3064e5619u, 0x37d4375250b315e1u},
    {"efficientnet_v2_l", 0, 1000, 0, 0, 1, "efficientnetv2-l", 119027848, 118515272, 1030, 1331, 0x14ada6d8ca89f12bu, 0x0d1eb78f165b614au},
    {"efficientnet_v2_l", 32, 1000, 0, 1, 1, "efficientnetv2-l", 117746848, 117234272, 1027, 1329, 0xd52d6f005bf88d66u, 0x87730bf2b04fbe43u},
    {"mobilenet_v2", 97, 3, 0, 0, 0.35, "mobilenetv2_0.35_97", 414051, 399971, 155, 262, 0x3256135a560b3a57u, 0x7c994c15bed7ac01u},
    {"mobilenet_v2", 97, 3, 0, 0, 0.5, "mobilenetv2_0.50_97", 710067, 691523, 155, 262, 0xa1a214deec2ca77cu, 0x2439cf0071b6bd0fu},
    {"mobilenet_v2", 97, 3, 0, 0, 0.75, "mobilenetv2_0.75_97", 1385907, 1359267, 155, 262, 0xcd050a4c505ba830u, 0x145ba71bed4eccd3u},
    {"mobilenet_v2", 97, 3, 0, 0, 1.3, "mobilenetv2_1.30_97", 3771043, 3726787, 155, 262, 0x1cc0a2792824ad45u, 0x96fa2e64124c3f86u},
    {"mobilenet_v2", 97, 3, 0, 0, 1.4, "mobilenetv2_1.40_97", 4369091, 4321155, 155, 262, 0x395515f160c7a6cdu, 0xcbe866cf18e478dfu},
    {"mobilenet_v2", 97, 3, 0, 0, 0.1, "mobilenetv2_0.10_97", 97155, 89923, 156, 262, 0x5218964fa590615au, 0x59b092301bc86ad9u},
    {"mobilenet_v2", 224, 1000, 1, 1, 0.35, "mobilenetv2_0.35_224", 410208, 396128, 154, 260, 0xd08139ca47efdb28u, 0x84ab2c928e2b1a20u},
    {"resnet50", 33, 1000, 2, 1, 1, "resnet50", 23587712, 23534592, 175, 318, 0x4cd320d2055d02e2u, 0x4c25a93d5872cfc6u},
    {"efficientnet_v2_b0", 45, 1000, 1, 1, 1, "efficientnetv2-b0", 5919312, 5858704, 270, 359, 0xeec479459de0cebdu, 0x5922380936b84fdbu},
};

static const golden_forward golden_forwards[] = {
    {"mobilenet_v2", 0.35, 1.25, 1.74155715764,
     {-1.78603005641, 1.12521108085, -1.82313687218, 1.54531456876, -2.62608384339, -0.350513695005, -1.12792726947, 0.770499667842, -1.87701153172, 1.15588104795, -2.29508844265, -0.978288997232, -2.34493358182, 1.22949204763, -1.92600317508, 1.64932530501, -2.51992847066, -1.10918184954, -1.78328710849, 1.04886334764, -1.70436919944, 1.30739478331, -2.77201471845, -1.02366288995}},
    {"resnet50", 1, 1, 2.95382783007,
     {311.701379139, -90.843083351, -252.712110042, -17.6144958318, -86.4017792922, -385.631130706, 326.445216517, -99.7634269754, -269.747349048, -41.2187765109, -60.7350436712, -356.050081349, 338.039776052, -103.187172846, -277.43614581, -10.8814603359, -59.6900679861, -356.557565636, 343.844845094, -116.778841492, -246.650428524, -22.3203668178, -76.7331218554, -363.16136597}},
    {"efficientnet_v2_b0", 1, 1.25, 2.16370745967,
     {0.177155870698, -0.460603582083, -1.50408114134, 1.06257285477, -0.363360075898, 2.41924728385, 0.134994697044, -0.49409021862, -1.49766500385, 0.993756646648, -0.401422808463, 2.26769470551, -0.00216814406975, -0.694288229123, -1.13322591419, 1.12763677086, -0.235835943768, 2.4730414076, 0.20938031892, -0.592302344915, -1.62209674405, 0.657761099887, -0.261088180221, 2.41690142758}},
};

#endif
